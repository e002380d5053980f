//! Weights that are held in 16 bits.

use half::bf16;

use crate::cpu::real::convert;
use crate::error::OutOfMemory;
use crate::parameter::Parameter;
use crate::parameter::description::Training;
use crate::pool;
use crate::tensor::numbers::Numbers;

impl Parameter {
    /// Holds the weights in 16 bits from now on, rounded to nearest, and frees [`Parameter::value`] and
    /// [`Parameter::grad`]. For a layer that will only be asked for outputs.
    pub(crate) fn hold_in_bf16(&mut self) {
        let mut halves = pool::allocate(self.value.len())
            .unwrap_or_else(|| panic!("{}", OutOfMemory::on_host::<bf16>(self.value.len())));
        convert::<bf16, f32>(&mut halves, &self.value);
        self.train_by(Training {
            frozen: true,
            ..self.training()
        });
        self.halves = Some(halves);
        self.value = Numbers::none();
    }

    /// The weights, if they are held in 16 bits.
    pub(crate) fn halves(&self) -> Option<&[bf16]> {
        self.halves.as_deref()
    }
}
