//! Weights that several parameters of a rank have in common.

use std::mem::take;

use bytemuck::cast_slice;

use crate::parameter::Parameter;
use crate::parameter::weights::WeightMemory;
use crate::tensor::numbers::Numbers;

/// The weights of a parameter, while others get them: until they are [put back](SharedWeights::put_back), it
/// has none on the host.
#[derive(Debug)]
#[must_use]
pub struct SharedWeights {
    value: Numbers,
    on_gpu: Option<WeightMemory>,
}

impl SharedWeights {
    /// Takes the weights of a parameter.
    pub fn take(from: &mut Parameter) -> Self {
        Self { value: take(&mut from.value), on_gpu: from.on_gpu().map(|weights| weights.shared()) }
    }

    /// Gives them back.
    pub fn put_back(self, to: &mut Parameter) {
        to.value = self.value;
    }
}

impl Parameter {
    /// Takes the weights of a tied parameter with the same name on the same device, whose gradient at the end
    /// of a step is the same. From now on only that one is updated, and only that one has state. On a GPU the
    /// two share the memory of the weights. On the CPU this has to be called again after each update.
    ///
    /// # Panics
    /// When the two have different numbers of weights, or are not on one device.
    pub fn follow(&mut self, leader: &SharedWeights) {
        assert_eq!(self.value.len(), leader.value.len(), "{}: it follows one of its size", self.name());
        assert_eq!(
            self.on_gpu().is_some(),
            leader.on_gpu.is_some(),
            "{}: they are on one device",
            self.name()
        );
        self.follows = true;
        self.state = Vec::new();
        if let (Some(weights), Some(shared)) = (self.on_gpu_mut(), &leader.on_gpu) {
            weights.share(shared.clone());
        } else if cast_slice::<f32, u8>(&self.value) != cast_slice::<f32, u8>(&leader.value) {
            // Weights of a file may be lent, and are copied if they are changed.
            self.value.copy_from_slice(&leader.value);
        }
    }

    /// Whether it [follows](Parameter::follow) another parameter.
    pub fn follows(&self) -> bool {
        self.follows
    }
}
