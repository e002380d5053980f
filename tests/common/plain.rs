//! A layer and a loss as people write them first: for the CPU, in `f32`.

use pipewright::stages::loss::{Loss, Score};
use pipewright::stages::{ForwardContext, Kept, Layer, Result, Shape, Tensor};

/// A layer that gives what it gets. It does not say that it runs on GPUs or in `bf16`.
#[derive(Debug)]
pub(crate) struct PlainLayer;

impl Layer for PlainLayer {
    fn name(&self) -> &str {
        "plain"
    }

    fn output_shape(&self, input: &Shape) -> Result<Shape> {
        Ok(*input)
    }

    fn forward(&mut self, ctx: ForwardContext, input: Tensor) -> Result<(Tensor, Kept)> {
        Ok((input, Kept::new(ctx, [])))
    }

    fn backward_input(&mut self, saved: Kept, grad: Tensor) -> Result<(Option<Tensor>, Kept)> {
        Ok((Some(grad), saved))
    }
}

/// A loss of 0. It does not say that it runs on GPUs or in `bf16`.
#[derive(Clone, Debug)]
pub(crate) struct PlainLoss;

impl Loss<Tensor> for PlainLoss {
    fn check(&self, _: &Shape, _: &Shape) -> Result<()> {
        Ok(())
    }

    fn forward(&mut self, output: Tensor, _: Tensor) -> Result<(Score, Tensor)> {
        Ok((Score::default(), output))
    }

    fn score(&mut self, _: Tensor, _: Tensor) -> Result<Score> {
        Ok(Score::default())
    }
}
