//! Updates of weights.

use smallvec::SmallVec;

use crate::cuda::batched_launch::{Entry, Together, Used};
use crate::cuda::launch::Arg;
use crate::cuda::{Gpu, Ptr};
use crate::error::Result;
use crate::optimizer::{cpu_adamw as adamw, cpu_lion as lion, cpu_sgd as sgd};
use crate::parameter::Parameter;

/// The threads of a block. Each has four numbers.
const THREADS: u32 = 256;

/// Contiguous `f32` weights to update.
#[derive(Debug)]
pub(crate) struct Flat {
    /// Where the parameter's whole gradient is.
    pub(crate) of: Ptr,
    /// The weights.
    pub(crate) value: Ptr,
    /// Their gradient.
    pub(crate) grad: Ptr,
    /// What the optimizer keeps. [`Ptr::NONE`] where it keeps less.
    pub(crate) state: [Ptr; 2],
    /// Their `bf16` copy, which the update renews. [`Ptr::NONE`] if there is none.
    pub(crate) half: Ptr,
    /// How many weights there are.
    pub(crate) count: usize,
    /// All of this memory.
    pub(crate) memory: SmallVec<[Used; 5]>,
}

/// How many blocks `count` numbers take.
fn blocks(count: usize) -> usize {
    count.div_ceil(4 * THREADS as usize)
}

impl Gpu {
    /// As [`adamw::update`], with the same bits.
    pub(crate) fn adamw(&self, weights: Flat, by: adamw::Scalars, together: &mut Together) -> Result<()> {
        let args = [
            by.scale.into(),
            by.mean_step.into(),
            by.square_keep.into(),
            by.square_step.into(),
            by.root_scale.into(),
            by.epsilon.into(),
        ];
        self.update("adamw", &args, weights, [by.shrink, by.step_size], together)
    }

    /// As [`lion::update`], with the same bits.
    pub(crate) fn lion(&self, weights: Flat, by: lion::Scalars, together: &mut Together) -> Result<()> {
        let args = [by.scale.into(), by.direction_step.into(), by.mean_step.into()];
        self.update("lion", &args, weights, [by.shrink, by.learning_rate], together)
    }

    /// As [`sgd::update`] or, without state, [`sgd::update_plain`], with the same bits.
    pub(crate) fn sgd(&self, weights: Flat, by: sgd::Scalars, together: &mut Together) -> Result<()> {
        let args = [by.scale.into(), by.momentum.into()];
        self.update(
            "sgd",
            &args,
            weights,
            [by.weight_decay, by.learning_rate],
            together,
        )
    }

    /// `value += share (sum / micro-batches - value)`, where the gradient is the sum. The bits are the CPU's.
    pub(crate) fn running_mean(
        &self,
        weights: Flat,
        share: f32,
        micro_batches: f32,
        together: &mut Together,
    ) -> Result<()> {
        self.update(
            "running_mean",
            &[micro_batches.into()],
            weights,
            [share, 0.0],
            together,
        )
    }

    /// `own` are the numbers that are the parameter's own.
    fn update(
        &self,
        kernel: &'static str,
        args: &[Arg],
        weights: Flat,
        own: [f32; 2],
        together: &mut Together,
    ) -> Result<()> {
        let [first, second] = weights.state;
        let words = [
            weights.value.0,
            weights.grad.0,
            first.0,
            second.0,
            weights.half.0,
            weights.count as u64,
            bytemuck::cast(own),
        ];
        let entry = Entry {
            words: &words,
            of: weights.of,
            blocks: blocks(weights.count),
            memory: weights.memory,
        };
        together.add(self, (kernel, THREADS), args, entry)
    }

    /// Sets `count` numbers of a gradient to zero.
    pub(crate) fn clear_gradient(
        &self,
        (grad, memory): (Ptr, Used),
        count: usize,
        together: &mut Together,
    ) -> Result<()> {
        let entry = Entry {
            words: &[grad.0, count as u64],
            of: grad,
            blocks: blocks(count),
            memory: SmallVec::from_iter([memory]),
        };
        together.add(self, ("clear_gradients", THREADS), &[], entry)
    }

    /// The sums of the squares of `count` `f32` numbers, one `f64` for each [piece](Parameter::PIECE). `out`
    /// may be pinned memory of the host.
    pub(crate) fn sum_squares(
        &self,
        (out, numbers): (Ptr, Ptr),
        count: usize,
        memory: [Used; 2],
        together: &mut Together,
    ) -> Result<()> {
        let entry = Entry {
            words: &[out.0, numbers.0, count as u64],
            of: numbers,
            blocks: count.div_ceil(Parameter::PIECE),
            memory: SmallVec::from_iter(memory),
        };
        let args = [(Parameter::PIECE as u64).into()];
        together.add(self, ("sum_squares", THREADS), &args, entry)
    }
}
