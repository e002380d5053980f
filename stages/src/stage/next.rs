//! The last token of a text, whose scores say what may follow.

use crate::cpu::real::in_format;
use crate::error::Result;
use crate::tensor::{Bytes, Tensor};

/// The last row of numbers, `[1, 1, width]`.
pub(crate) fn last_row(rows: Tensor) -> Result<Tensor> {
    if rows.shape().rows() == 1 {
        return Ok(rows);
    }
    let width = rows.shape().last();
    let mut last = rows.beside(&[1, 1, width])?;
    if let Some(gpu) = rows.gpu()? {
        let bytes = last.bytes() as usize;
        gpu.copy(last.at(), rows.at().offset(rows.bytes() as usize - bytes), bytes)?;
        return Ok(last);
    }
    in_format!(rows.dtype(), N => {
        let numbers = rows.numbers::<N>();
        last.numbers_mut::<N>().copy_from_slice(&numbers[numbers.len() - width..]);
    });
    Ok(last)
}
