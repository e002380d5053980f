//! Copies of operands in the order in which products read them.

use std::ops::Range;

use multiversion::multiversion;

use super::matrix::Matrix;
use super::prefetch::{LINE, prefetch};
use super::tile::ROWS;
use crate::pool::Buffer;

/// Columns of a panel: as many as the widest tile, two AVX-512 registers.
pub(super) const PANEL: usize = 32;

/// The depth of a block.
pub(super) const DEPTH: usize = 512;

/// The right operand of products: blocks of the depth, in each the panels of 32 columns one after the other, each row by row.
/// Columns that fill up the last panel hold any numbers.
#[derive(Debug)]
pub(crate) struct Packed {
    numbers: Buffer,
    depth: usize,
    columns: usize,
}

impl Packed {
    /// A copy of a matrix.
    pub(crate) fn new(from: Matrix<'_>) -> Self {
        let width = from.columns.next_multiple_of(PANEL);
        let mut numbers = Buffer::pooled(from.rows * width);
        for (to, depth) in numbers.chunks_mut(DEPTH * width).zip(blocks(from.rows)) {
            pack::<PANEL>(to, depth.len(), from, depth, 0..from.columns);
        }
        Self {
            numbers,
            depth: from.rows,
            columns: from.columns,
        }
    }

    /// The panels of a block.
    fn block(&self, depth: &Range<usize>, columns: &Range<usize>) -> &[f32] {
        let width = self.columns.next_multiple_of(PANEL);
        let panels = &self.numbers[depth.start * width..depth.end * width];
        &panels[columns.start * depth.len()..columns.end.next_multiple_of(PANEL) * depth.len()]
    }
}

/// The right operand of a product.
#[derive(Clone, Copy)]
pub(crate) enum Right<'a> {
    /// Packed before, for several products.
    Packed(&'a Packed),
    /// Packed block by block, for this one.
    Matrix(Matrix<'a>),
}

impl Right<'_> {
    /// Rows.
    pub(super) fn depth(self) -> usize {
        match self {
            Self::Packed(packed) => packed.depth,
            Self::Matrix(matrix) => matrix.rows,
        }
    }

    /// Columns.
    pub(super) fn columns(self) -> usize {
        match self {
            Self::Packed(packed) => packed.columns,
            Self::Matrix(matrix) => matrix.columns,
        }
    }
}

/// The panels of a block of the right operand.
#[inline(always)]
pub(super) fn panels<'a>(
    from: Right<'a>,
    depth: &Range<usize>,
    columns: &Range<usize>,
    to: &'a mut Buffer,
) -> &'a [f32] {
    match from {
        Right::Packed(packed) => packed.block(depth, columns),
        Right::Matrix(matrix) => {
            let length = columns.len().next_multiple_of(PANEL) * depth.len();
            pack::<PANEL>(to, depth.len(), matrix, depth.clone(), columns.clone());
            &to[..length]
        }
    }
}

/// A block of the left operand's rows as tiles read them: eight rows beside each other, column by column.
pub(super) struct Strips {
    numbers: Buffer,
    depth: usize,
}

impl Strips {
    pub(super) fn new(rows: usize, depth: usize) -> Self {
        let depth = depth + 4;
        Self { numbers: Buffer::pooled(depth * rows.next_multiple_of(ROWS)), depth }
    }

    /// Copies rows of the columns `depth` of a turned matrix.
    pub(super) fn pack(&mut self, from: Matrix<'_>, depth: &Range<usize>, rows: Range<usize>) {
        pack::<ROWS>(&mut self.numbers[rows.start * self.depth..], self.depth, from.t(), depth.clone(), rows);
    }

    /// The strip that holds a row.
    #[inline(always)]
    pub(super) fn of(&self, row: usize) -> &[[f32; ROWS]] {
        let at = row / ROWS * ROWS * self.depth;
        self.numbers[at..at + ROWS * self.depth].as_chunks().0
    }
}

/// The depth, cut into blocks.
pub(super) fn blocks(depth: usize) -> impl Iterator<Item = Range<usize>> {
    (0..depth)
        .step_by(DEPTH)
        .map(move |at| at..depth.min(at + DEPTH))
}

/// Lays out rows `depth` of columns of a matrix as panels of `WIDTH` columns.
#[multiversion(targets = "simd")]
fn pack<const WIDTH: usize>(to: &mut [f32], pitch: usize, from: Matrix<'_>, depth: Range<usize>, columns: Range<usize>) {
    if from.turned {
        pack_turned::<WIDTH>(to, pitch, from, depth, columns);
    } else {
        pack_rows::<WIDTH>(to, pitch, from, depth, columns);
    }
}

/// Takes two lines of the cache from each row at once.
#[inline(always)]
fn pack_rows<const WIDTH: usize>(to: &mut [f32], pitch: usize, from: Matrix<'_>, depth: Range<usize>, columns: Range<usize>) {
    const GROUP: usize = 2 * LINE;
    const AHEAD: usize = 16;
    for first in columns.clone().step_by(GROUP) {
        let to = &mut to[(first - columns.start) * pitch..];
        let columns = first..columns.end.min(first + GROUP);
        for (at, row) in depth.clone().enumerate() {
            for line in columns.clone().step_by(LINE) {
                prefetch(from.numbers, (row + AHEAD) * from.stride + line);
            }
            let row = &from.numbers[row * from.stride..][columns.clone()];
            let (chunks, rest) = row.as_chunks::<WIDTH>();
            for (index, chunk) in chunks.iter().enumerate() {
                to[(index * pitch + at) * WIDTH..][..WIDTH].copy_from_slice(chunk);
            }
            if !rest.is_empty() {
                to[(chunks.len() * pitch + at) * WIDTH..][..rest.len()].copy_from_slice(rest);
            }
        }
    }
}

/// Eight lines at a time: lines whose length is a power of two fall on the same places of the first cache, and it has
/// eight of each.
#[inline(always)]
fn pack_turned<const WIDTH: usize>(to: &mut [f32], pitch: usize, from: Matrix<'_>, depth: Range<usize>, columns: Range<usize>) {
    const LINES: usize = 8;
    for first in columns.clone().step_by(LINES) {
        let lines: [&[f32]; LINES] = std::array::from_fn(|index| {
            let line = (first + index).min(columns.end - 1);
            &from.numbers[line * from.stride..][depth.clone()]
        });
        let first = first - columns.start;
        let panel = to[first / WIDTH * WIDTH * pitch..].as_chunks_mut::<WIDTH>().0;
        for (at, to) in panel[..depth.len()].iter_mut().enumerate() {
            let numbers: [f32; LINES] = std::array::from_fn(|index| lines[index][at]);
            to[first % WIDTH..][..LINES].copy_from_slice(&numbers);
        }
    }
}
