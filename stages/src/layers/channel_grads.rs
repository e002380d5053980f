//! The gradients of the parameters of norms of channels.

use crate::cpu::elementwise;
use crate::error::Result;
use crate::parameter::Parameter;
use crate::tensor::Tensor;

/// Adds to the parameter's gradient one of the rows of `f32` that backward-input has made.
pub(super) fn add_part(parameter: &mut Parameter, adds: &Tensor, which: usize) -> Result<()> {
    let width = adds.shape().last();
    let start = which * width;
    match adds.gpu()? {
        Some(gpu) => parameter.weights().add_grad(&gpu, adds.at().offset(4 * start)),
        None => {
            elementwise::add(&mut parameter.grad, &adds.f32()[start..][..width]);
            Ok(())
        }
    }
}
