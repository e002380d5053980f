//! The gradient of a bias.

use super::groups_on_gpu::{Apart, Matrix, width};
use crate::cpu::elementwise::add_rows;
use crate::cpu::real::in_format;
use crate::cuda::Gpu;
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

/// Adds the sum of all rows to a row.
fn add_columns(gpu: &Gpu, sums: Matrix, of: Matrix) -> Result<()> {
    let scratch = gpu.memory_of(gpu.column_sums_scratch(of.rows, of.columns))?;
    gpu.add_column_sums(of.dtype, sums.at, of.at, of.rows, of.columns, scratch.at())
}
