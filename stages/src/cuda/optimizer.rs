//! One update of weights.

use super::{Gpu, Grid, Ptr};
use crate::cpu::{adamw, sgd};
use crate::error::Result;

/// Weights to update, `f32`, in a row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flat {
    /// Where they are.
    pub(crate) value: Ptr,
    /// Their gradient.
    pub(crate) grad: Ptr,
    /// Their `bf16` copy, which is made anew; none at 0.
    pub(crate) half: Ptr,
    /// How many.
    pub(crate) count: usize,
}

impl Flat {
    fn grid(self) -> Grid {
        Grid::each(self.count.div_ceil(4), 256)
    }
}

impl Gpu {
    /// As [`adamw::update`], to the bit.
    pub(crate) fn adamw(&self, weights: Flat, mean: Ptr, square: Ptr, by: adamw::Scalars) -> Result<()> {
        let args = [
            weights.value.into(),
            weights.grad.into(),
            mean.into(),
            square.into(),
            weights.half.into(),
            (weights.count as u64).into(),
            by.scale.into(),
            by.shrink.into(),
            by.mean_step.into(),
            by.square_keep.into(),
            by.square_step.into(),
            by.root_scale.into(),
            by.epsilon.into(),
            by.step_size.into(),
        ];
        self.launch("adamw", weights.grid(), &args)
    }

    /// As [`sgd::update`] or, without momentum, [`sgd::update_plain`], to the bit.
    pub(crate) fn sgd(&self, weights: Flat, momentum: Option<Ptr>, by: sgd::Scalars) -> Result<()> {
        let args = [
            weights.value.into(),
            weights.grad.into(),
            momentum.unwrap_or(Ptr::NONE).into(),
            weights.half.into(),
            (weights.count as u64).into(),
            by.scale.into(),
            by.weight_decay.into(),
            by.momentum.into(),
            by.learning_rate.into(),
        ];
        self.launch("sgd", weights.grid(), &args)
    }
}
