//! Weights that several parameters of a rank have in common.

use std::mem::take;

use crate::parameter::Parameter;
use crate::parameter::weights::WeightMemory;
use crate::tensor::numbers::Numbers;

/// The weights of a parameter, while others get them.
#[derive(Debug)]
pub struct SharedWeights {
    value: Numbers,
    on_gpu: Option<WeightMemory>,
}

impl SharedWeights {
    /// Takes the weights of a parameter. It has none on the host until it gets them
    /// [back](SharedWeights::put_back).
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
    pub fn follow(&mut self, leader: &SharedWeights) {
        self.follows = true;
        self.state = Vec::new();
        if let (Some(weights), Some(shared)) = (self.on_gpu_mut(), &leader.on_gpu) {
            weights.share(shared.clone());
        } else if self.value[..] != leader.value[..] {
            // Weights of a file may be lent, and are copied if they are changed.
            self.value.copy_from_slice(&leader.value);
        }
    }

    /// Whether it [follows](Parameter::follow) another parameter.
    pub fn follows(&self) -> bool {
        self.follows
    }
}
