//! Updates of weights.

use super::{Gpu, Grid, Ptr};
use crate::cpu::{adamw, lion, sgd};
use crate::error::Result;

/// Contiguous `f32` weights to update.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flat {
    /// The weights.
    pub(crate) value: Ptr,
    /// Their gradient.
    pub(crate) grad: Ptr,
    /// Their `bf16` copy, which the update renews. [`Ptr::NONE`] if there is none.
    pub(crate) half: Ptr,
    /// How many weights there are.
    pub(crate) count: usize,
}

impl Flat {
    fn grid(self) -> Grid {
        Grid::each(self.count.div_ceil(4), 256)
    }
}

impl Gpu {
    /// Like [`adamw::update`], with the same bits.
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

    /// Like [`lion::update`], with the same bits.
    pub(crate) fn lion(&self, weights: Flat, mean: Ptr, by: lion::Scalars) -> Result<()> {
        let args = [
            weights.value.into(),
            weights.grad.into(),
            mean.into(),
            weights.half.into(),
            (weights.count as u64).into(),
            by.scale.into(),
            by.shrink.into(),
            by.direction_step.into(),
            by.mean_step.into(),
            by.learning_rate.into(),
        ];
        self.launch("lion", weights.grid(), &args)
    }

    /// Like [`sgd::update`] or, without momentum, [`sgd::update_plain`], with the same bits.
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

    /// `value += share (sum / micro-batches - value)`, where the gradient is the sum. The bits are the CPU's.
    pub(crate) fn running_mean(&self, weights: Flat, share: f32, micro_batches: f32) -> Result<()> {
        let args = [
            weights.value.into(),
            weights.grad.into(),
            weights.half.into(),
            (weights.count as u64).into(),
            share.into(),
            micro_batches.into(),
        ];
        self.launch("running_mean", weights.grid(), &args)
    }
}
