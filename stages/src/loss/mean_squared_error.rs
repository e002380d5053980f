//! Mean squared error.

use super::{Loss, Score};
use crate::error::Result;
use crate::shape::{Kind, Shape};
use crate::tensor::Tensor;

/// The squared difference of output and target, summed over all numbers; the weight is their number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MeanSquaredError;

impl Loss<Tensor> for MeanSquaredError {
    fn check(&self, output: &Shape, target: &Shape) -> Result<()> {
        if output.kind() == Kind::F32 && output == target {
            return Ok(());
        }
        Err(super::unfit(
            format!("{} as the target", Shape::f32(output.dims())),
            target,
        ))
    }

    fn forward(&mut self, mut output: Tensor, target: Tensor) -> Result<(Score, Tensor)> {
        self.check(output.shape(), target.shape())?;
        let mut sum = 0.0;
        for (number, &target) in output.f32_mut().iter_mut().zip(target.f32()) {
            let difference = *number - target;
            sum += f64::from(difference) * f64::from(difference);
            *number = 2.0 * difference;
        }
        let weight = target.shape().count() as f64;
        Ok((
            Score {
                sum,
                weight,
                correct: None,
            },
            output,
        ))
    }

    fn score(&mut self, output: Tensor, target: Tensor) -> Result<Score> {
        Ok(self.forward(output, target)?.0)
    }
}
