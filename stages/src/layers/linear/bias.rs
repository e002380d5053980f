//! The gradient of a bias.

use super::groups_on_gpu::{Apart, Matrix, width};
use crate::cpu::elementwise::add_rows;
use crate::cpu::real::in_format;
use crate::cuda::Gpu;
use crate::cuda::launch::kernel;
use crate::device::DType;
use crate::error::Result;
use crate::parameter::Parameter;
use crate::tensor::Tensor;

/// Adds the sum of the gradient's rows to the bias's gradient. A GPU adds up each of these groups of columns
/// by itself.
pub(crate) fn add_bias_grad(bias: &mut Parameter, grad: &Tensor, apart: Option<&Apart>) -> Result<()> {
    let Some(gpu) = grad.gpu()? else {
        in_format!(grad.dtype(), N => add_rows(&mut bias.grad, grad.numbers::<N>()));
        return Ok(());
    };
    let (grads, at) = (Matrix::of(grad), bias.weights().grad()?);
    let sums = Matrix { at, dtype: DType::F32, rows: 1, columns: grads.columns };
    let Some(apart) = apart else {
        return add_columns(&gpu, sums, grads);
    };
    for places in &apart.groups {
        let (part, sum) = (grads.columns(&gpu, places)?, sums.columns(&gpu, places)?);
        let columns = width(places);
        let to = Matrix { at: sum.at(), columns, ..sums };
        add_columns(&gpu, to, Matrix { at: part.at(), columns, ..grads })?;
        sums.put_columns(&gpu, places, &sum)?;
    }
    Ok(())
}

/// Adds sums that a kernel has made already, of slices of the gradient's rows.
pub(crate) fn add_sums(bias: &mut Parameter, sums: &Tensor) -> Result<()> {
    let gpu = sums.gpu()?.expect("only a GPU makes sums for a bias");
    gpu.add_slices(bias.weights().grad()?, sums.at(), [sums.shape().rows(), sums.shape().last()])
}

/// Adds the sum of all rows to a row.
fn add_columns(gpu: &Gpu, sums: Matrix, of: Matrix) -> Result<()> {
    let slices = gpu.slices(of.rows, of.columns);
    let partials = gpu.memory_of(slices * of.columns * size_of::<f32>())?;
    let kernel = kernel!(of.dtype, "column_sums");
    gpu.sum_slices(kernel, partials.at(), [of.at], [of.rows, of.columns])?;
    gpu.add_slices(sums.at, partials.at(), [slices, of.columns])
}
