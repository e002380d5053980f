//! What branches need: products, and columns side by side.

use std::ops::Range;

use crate::cpu::real::in_format;
use crate::cpu::{columns, elementwise};
use crate::cuda::Columns;
use crate::error::Result;
use crate::tensor::Tensor;

/// Multiplies `to` by `from`, number by number.
pub(super) fn multiply(to: &mut Tensor, from: &Tensor) -> Result<()> {
    match from.gpu()? {
        Some(gpu) => {
            let at = to.at_mut(&gpu)?;
            gpu.multiply(from.dtype(), at, from.at(), from.shape().count())
        }
        None => {
            in_format!(from.dtype(), N => {
                elementwise::multiply(to.numbers_mut::<N>(), from.numbers::<N>());
            });
            Ok(())
        }
    }
}

/// Some columns of all rows.
pub(super) fn take(rows: &Tensor, range: Range<usize>) -> Result<Tensor> {
    let mut out = rows.beside(rows.shape().with_last(range.len()).dims())?;
    if out.shape().count() == 0 {
        return Ok(out);
    }
    match rows.gpu()? {
        Some(gpu) => gpu.take_columns(rows.dtype(), out.at(), rows.at(), &columns_of(rows, range), 1.0)?,
        None => in_format!(rows.dtype(), N => {
            columns::take::<N>(out.numbers_mut(), rows.numbers(), rows.shape().last(), range, 1.0);
        }),
    }
    Ok(out)
}

/// Writes some columns of all rows.
pub(super) fn put(rows: &mut Tensor, range: Range<usize>, from: &Tensor) -> Result<()> {
    if from.shape().count() == 0 {
        return Ok(());
    }
    let width = rows.shape().last();
    match from.gpu()? {
        Some(gpu) => {
            let of = columns_of(rows, range);
            gpu.put_columns(from.dtype(), rows.at_mut(&gpu)?, &of, from.at())
        }
        None => {
            in_format!(from.dtype(), N => {
                columns::put::<N>(rows.numbers_mut(), width, range, from.numbers());
            });
            Ok(())
        }
    }
}

fn columns_of(rows: &Tensor, range: Range<usize>) -> Columns {
    Columns { rows: rows.shape().rows(), width: rows.shape().last(), range }
}
