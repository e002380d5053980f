//! Softmax of rows.

use crate::cpu::parts::{By, EXP, cut};
use crate::cpu::softmax;
use crate::error::{Error, Result};
use crate::shape::{Kind, Shape};
use crate::stage::ForwardContext;
use crate::stage::borders::Borders;
use crate::stage::kept::Kept;
use crate::stage::layer::Layer;
use crate::tensor::Tensor;

/// `exp(x) / sum(exp(x))` over the innermost dimension: numbers `[.., width]` to shares of 1 in the same
/// shape, for gates and mixtures. It keeps its output, and shares that memory with the next layer. It runs on
/// the CPU, in `f32`.
///
/// Before [`CrossEntropy`](crate::loss::CrossEntropy) there must be no softmax: that loss has one of its own.
///
/// ```
/// use pipewright_stages::layers::Softmax;
/// use pipewright_stages::{Layer, Shape};
///
/// let shape = Shape::f32(&[4, 8]);
/// assert_eq!(Softmax::new("shares").output_shape(&shape)?, shape);
/// # Ok::<(), pipewright_stages::Error>(())
/// ```
#[derive(Debug)]
pub struct Softmax {
    name: String,
}

impl Softmax {
    /// A layer of this name.
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned() }
    }
}

impl Layer for Softmax {
    fn name(&self) -> &str {
        &self.name
    }

    fn output_shape(&self, input: &Shape) -> Result<Shape> {
        if input.kind() == Kind::F32 && !input.dims().is_empty() && input.last() > 0 {
            return Ok(*input);
        }
        Err(Error::shape("f32[.., width]", input))
    }

    /// It treats each row alone.
    fn keep_apart(&mut self, _borders: &Borders) -> Result<()> {
        Ok(())
    }

    fn forward(&mut self, ctx: ForwardContext, input: Tensor) -> Result<(Tensor, Kept)> {
        let width = self.output_shape(input.shape())?.last();
        let mut output = input;
        cut(By(output.f32_mut(), width), EXP * width, |_, rows| {
            rows.chunks_exact_mut(width).for_each(|row| {
                softmax::probabilities(row, 1, 0.0);
            });
        });
        Ok((output.clone(), Kept::new(ctx, [output])))
    }

    fn backward_input(&mut self, saved: Kept, mut grad: Tensor) -> Result<(Option<Tensor>, Kept)> {
        let ctx = saved.ctx;
        let [output] = saved.into_tensors();
        let width = output.shape().last();
        let rows = (By(grad.f32_mut(), width), By(output.f32(), width));
        cut(rows, width, |_, (grads, outputs)| {
            for (grad, output) in grads.chunks_exact_mut(width).zip(outputs.chunks_exact(width)) {
                softmax::gradient(grad, output);
            }
        });
        Ok((Some(grad), Kept::new(ctx, [])))
    }
}
