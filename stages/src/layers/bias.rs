//! The gradient of a bias, for all layers that have one.

use crate::cpu::elementwise::add_rows;
use crate::cpu::real::in_format;
use crate::cuda::Gpu;
use crate::error::Result;
use crate::parameter::Parameter;
use crate::tensor::Tensor;

/// Adds the sum of the gradient's rows to the bias's gradient.
pub(super) fn add_bias_grad(bias: &mut Parameter, grad: &Tensor) -> Result<()> {
    if let Some(gpu) = grad.gpu()? {
        let (rows, columns, dtype) = (grad.shape().rows(), grad.shape().last(), grad.dtype());
        let scratch = gpu.memory_of(Gpu::column_sums_scratch(rows, columns))?;
        let sums = bias.weights().grad();
        return gpu.add_column_sums(dtype, sums, grad.at(), rows, columns, scratch.at());
    }
    in_format!(grad.dtype(), N => add_rows(&mut bias.grad, grad.numbers::<N>()));
    Ok(())
}
