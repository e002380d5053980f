//! Copies of operands in the order in which tiles read them.

use std::ops::Range;

use multiversion::multiversion;

use crate::cpu::matrix::Matrix;
use crate::cpu::prefetch::{LINE, prefetch};

/// The columns of a panel: as many as the widest tile, two AVX-512 registers.
pub(crate) const PANEL: usize = 32;

/// Copies the rows `depth` of some columns of a matrix into panels of `WIDTH` columns.
#[multiversion(targets = "simd")]
pub(crate) fn pack<const WIDTH: usize>(
    to: &mut [f32],
    pitch: usize,
    from: Matrix<'_>,
    depth: Range<usize>,
    columns: Range<usize>,
) {
    if from.turned {
        pack_turned::<WIDTH>(to, pitch, from, depth, columns);
    } else {
        pack_rows::<WIDTH>(to, pitch, from, depth, columns);
    }
}

/// Reads eight cache lines of each row at once. Rows that are a power of two apart use the same sets of the
/// first-level cache, so more lines would evict each other.
#[inline(always)]
fn pack_rows<const WIDTH: usize>(
    to: &mut [f32],
    pitch: usize,
    from: Matrix<'_>,
    depth: Range<usize>,
    columns: Range<usize>,
) {
    const GROUP: usize = 8 * LINE;
    const AHEAD: usize = 4;
    for first in columns.clone().step_by(GROUP) {
        let to = &mut to[(first - columns.start) / WIDTH * pitch..];
        let columns = first..columns.end.min(first + GROUP);
        for (at, row) in depth.clone().enumerate() {
            for line in columns.clone().step_by(LINE) {
                prefetch(from.numbers, (row + AHEAD) * from.stride + line);
            }
            let row = &from.numbers[row * from.stride..][columns.clone()];
            let (chunks, rest) = row.as_chunks::<WIDTH>();
            for (index, chunk) in chunks.iter().enumerate() {
                to[index * pitch + at * WIDTH..][..WIDTH].copy_from_slice(chunk);
            }
            if !rest.is_empty() {
                to[chunks.len() * pitch + at * WIDTH..][..rest.len()].copy_from_slice(rest);
            }
        }
    }
}

/// Takes eight lines at a time. Lines whose length is a power of two use the same sets of the first-level
/// cache, and each set holds eight.
#[inline(always)]
fn pack_turned<const WIDTH: usize>(
    to: &mut [f32],
    pitch: usize,
    from: Matrix<'_>,
    depth: Range<usize>,
    columns: Range<usize>,
) {
    const LINES: usize = 8;
    for first in columns.clone().step_by(LINES) {
        let lines: [&[f32]; LINES] = std::array::from_fn(|index| {
            let line = (first + index).min(columns.end - 1);
            &from.numbers[line * from.stride..][depth.clone()]
        });
        let first = first - columns.start;
        let panel = to[first / WIDTH * pitch..].as_chunks_mut::<WIDTH>().0;
        for (at, to) in panel[..depth.len()].iter_mut().enumerate() {
            let numbers: [f32; LINES] = std::array::from_fn(|index| lines[index][at]);
            to[first % WIDTH..][..LINES].copy_from_slice(&numbers);
        }
    }
}
