//! What an optimizer keeps for a parameter.

use bytemuck::{cast_slice, cast_slice_mut};

use crate::parameter::Parameter;
use crate::parameter::state_format::StateTensor;
use crate::tensor::numbers::Numbers;

impl Parameter {
    /// Says that the optimizer's tensors stay on the host, in page-locked memory, while the weights are on a
    /// GPU. An update brings them to the GPU part by part, and back. It has the same bits. On the CPU this
    /// changes nothing. It must be said before there is any state.
    ///
    /// # Panics
    /// When there is state.
    pub fn keep_state_on_host(&mut self) {
        assert!(self.state.is_empty(), "{}: it has state already", self.name());
        self.state_on_host = true;
        if let Some(weights) = self.on_gpu_mut() {
            weights.keep_state(true);
        }
    }

    /// Makes these tensors of the optimizer, all zeros, if it [updates](Parameter::is_optimized) the
    /// parameter.
    pub fn make_state(&mut self, tensors: &[StateTensor]) {
        let tensors = if self.is_optimized() { tensors } else { &[] };
        let zeros = |tensor| Numbers::zeros(self.state_bytes(tensor).div_ceil(size_of::<f32>()));
        self.state = tensors.iter().map(zeros).collect();
    }

    /// How many bytes of one of the optimizer's tensors are here: all of them, or those for the numbers of
    /// [`Parameter::owned`].
    pub fn state_bytes(&self, tensor: &StateTensor) -> usize {
        tensor.bytes_of(&self.owned, &self.dims).len()
    }

    /// The bytes of one of the optimizer's tensors, as they are stored here.
    ///
    /// # Panics
    /// When there is no such tensor, or no state yet.
    pub fn stored_state(&self, index: usize, tensor: &StateTensor) -> &[u8] {
        &cast_slice(&self.state[index])[..self.state_bytes(tensor)]
    }

    /// The same, to be written.
    ///
    /// # Panics
    /// As [`Parameter::stored_state`].
    pub fn stored_state_mut(&mut self, index: usize, tensor: &StateTensor) -> &mut [u8] {
        let bytes = self.state_bytes(tensor);
        &mut cast_slice_mut(&mut self.state[index])[..bytes]
    }
}
