//! The mean absolute error.

use super::Score;
use super::base::{Loss, check_numbers, of_numbers};
use crate::error::Result;
use crate::shape::Shape;
use crate::tensor::Tensor;

/// The distance of output and target, `|x - y|`, summed over all numbers. The weight is how many numbers
/// there are. PyTorch calls it `L1Loss`. Where output and target are equal, the gradient is 0.
///
/// It computes on the CPU, in `f32`.
#[derive(Clone, Copy, Debug, Default)]
pub struct AbsoluteError;

impl Loss<Tensor> for AbsoluteError {
    fn check(&self, output: &Shape, target: &Shape) -> Result<()> {
        check_numbers(output, target)
    }

    fn forward(&mut self, mut output: Tensor, target: Tensor) -> Result<(Score, Tensor)> {
        self.check(output.shape(), target.shape())?;
        let sum = of_numbers(&mut output, &target, |x, y| {
            let apart = x - y;
            let slope = if apart == 0.0 { 0.0 } else { apart.signum() };
            (f64::from(apart.abs()), slope)
        });
        Ok((Score::new(sum, target.shape().count() as f64), output))
    }
}
