//! Sums of tensors.

use super::Tensor;
use crate::cpu::elementwise;
use crate::cpu::real::in_format;
use crate::error::Result;

impl Tensor {
    /// Adds a tensor of the same shape in the same place, number by number.
    pub(crate) fn add(&mut self, other: &Self) -> Result<()> {
        match other.gpu()? {
            Some(gpu) => {
                let at = self.at_mut(&gpu)?;
                gpu.add(other.dtype(), at, at, other.at(), other.shape().count())
            }
            None => {
                in_format!(other.dtype(), N => {
                    elementwise::add(self.numbers_mut::<N>(), other.numbers::<N>());
                });
                Ok(())
            }
        }
    }
}
