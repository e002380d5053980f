//! Dropout.

pub(crate) mod cpu;
pub(crate) mod cuda;

use crate::cpu::real::in_format;
use crate::error::{Error, Result, SettingError, check_numbers};
use crate::layers::dropout::cpu::dropout;
use crate::rng;
use crate::stage::kept::Kept;
use crate::stage::layer::Layer;
use crate::stage::{ForwardContext, Mode};
use crate::tensor::Tensor;
use crate::tensor::shape::Shape;

/// Zeroes each number with probability `rate` and divides the others by `1 - rate`, in training only.
/// Srivastava et al., "Dropout" (2014).
///
/// What is zeroed depends only on (seed, layer name, step, micro-batch, position). Backward draws the same
/// random numbers again, so the layer keeps nothing.
#[derive(Debug)]
pub struct Dropout {
    name: String,
    rate: f32,
    key: [u32; 2],
}

impl Dropout {
    /// A layer that zeroes numbers with probability `rate`.
    ///
    /// # Errors
    /// When `rate` is not in `0..1`.
    pub fn new(name: &str, rate: f32, seed: u64) -> Result<Self> {
        if !(0.0..1.0).contains(&rate) {
            return Err(Error::from(SettingError::Dropout { rate }).at(name));
        }
        Ok(Self {
            name: name.to_owned(),
            rate,
            key: rng::key(seed, name),
        })
    }

    fn apply(&self, ctx: ForwardContext, mut tensor: Tensor) -> Result<Tensor> {
        if ctx.mode == Mode::Evaluate || self.rate == 0.0 {
            return Ok(tensor);
        }
        let moment = [ctx.micro_batch, ctx.step as u32, (ctx.step >> 32) as u32];
        match tensor.gpu()? {
            Some(gpu) => {
                let (dtype, count) = (tensor.dtype(), tensor.shape().count());
                gpu.dropout(dtype, tensor.at_mut(&gpu)?, count, self.rate, self.key, moment)?;
            }
            None => in_format!(tensor.dtype(), N => {
                dropout(tensor.numbers_mut::<N>(), self.rate, self.key, moment);
            }),
        }
        Ok(tensor)
    }
}

impl Layer for Dropout {
    fn name(&self) -> &str {
        &self.name
    }

    fn runs_on_gpus(&self) -> bool {
        true
    }

    fn output_shape(&self, input: &Shape) -> Result<Shape> {
        check_numbers(input)?;
        Ok(*input)
    }

    fn forward(&mut self, ctx: ForwardContext, input: Tensor) -> Result<(Tensor, Kept)> {
        self.output_shape(input.shape())?;
        Ok((self.apply(ctx, input)?, Kept::new(ctx, [])))
    }

    fn kept_without_input(&self, ctx: ForwardContext) -> Option<Kept> {
        Some(Kept::new(ctx, []))
    }

    fn backward_input(&mut self, saved: Kept, grad: Tensor) -> Result<(Option<Tensor>, Kept)> {
        let ctx = saved.ctx;
        Ok((Some(self.apply(ctx, grad)?), Kept::new(ctx, [])))
    }
}
