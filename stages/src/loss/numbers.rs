//! What losses over single numbers share.

use super::refused;
use crate::error::{Result, ShapeError};
use crate::tensor::Tensor;
use crate::tensor::shape::{Kind, Shape};

/// Fails unless output and target are numbers of one shape.
pub(super) fn check_numbers(output: &Shape, target: &Shape) -> Result<()> {
    if output.kind() == Kind::F32 && output == target {
        return Ok(());
    }
    Err(refused(ShapeError::Target {
        expected: Shape::f32(output.dims()),
        got: *target,
    }))
}

/// Turns each output into its gradient, and returns the sum of the losses, added up in order. `one` gives the
/// loss of an output beside its target, and its slope.
pub(super) fn of_numbers(output: &mut Tensor, target: &Tensor, one: impl Fn(f32, f32) -> (f64, f32)) -> f64 {
    let mut sum = 0.0;
    for (number, &target) in output.f32_mut().iter_mut().zip(target.f32()) {
        let (loss, slope) = one(*number, target);
        sum += loss;
        *number = slope;
    }
    sum
}
