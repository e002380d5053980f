//! The left operand of a product, where its columns are contiguous: packed in strips of rows.

use std::ops::Range;

use super::pack::pack;
use crate::cpu::matrix::Matrix;
use crate::cpu::prefetch::{LINE, Lines};
use crate::cpu::tile::ROWS;
use crate::pool::Buffer;

/// A turned left operand as tiles read it: strips of eight rows, each column by column. Packed group by group, right before
/// it is read.
pub(super) struct Strips<'a> {
    from: Matrix<'a>,
    depth: Range<usize>,
    /// Numbers of a strip: more than it holds, since strips a power of two apart fall on the same places of the first cache.
    pitch: usize,
    numbers: Buffer,
}

/// Numbers of the strips of a left operand of so many rows and columns.
pub(super) fn numbers(rows: usize, depth: usize) -> usize {
    rows.div_ceil(ROWS) * pitch(depth)
}

/// Numbers of a strip of so many columns.
fn pitch(depth: usize) -> usize {
    depth * ROWS + 2 * LINE
}

impl<'a> Strips<'a> {
    /// Rows that are packed at once, and that threads share the output by: two lines of the cache.
    pub(super) const GROUP: usize = 2 * LINE;

    /// Room for the columns `depth` of a turned matrix.
    pub(super) fn new(from: Matrix<'a>, depth: &Range<usize>) -> Self {
        Self {
            from,
            depth: depth.clone(),
            pitch: pitch(depth.len()),
            numbers: Buffer::pooled(numbers(from.rows, depth.len())),
        }
    }

    /// Comes to a row of tiles: packs the group that begins there, if this is the `first` block of columns. Gives what to
    /// ask for meanwhile: a share of what the next group is packed from.
    #[inline(always)]
    pub(super) fn reach<const HEIGHT: usize>(&mut self, row: usize, first: bool) -> Lines<'a> {
        if !first {
            return Lines::NONE;
        }
        if row.is_multiple_of(Self::GROUP) {
            let rows = row..self.from.rows.min(row + Self::GROUP);
            let to = &mut self.numbers[row / ROWS * self.pitch..];
            pack::<ROWS>(to, self.pitch, self.from.t(), self.depth.clone(), rows);
        }
        let share = self.depth.len() * HEIGHT / Self::GROUP;
        let (group, part) = (row / Self::GROUP + 1, row % Self::GROUP / HEIGHT);
        let start = self.depth.start + part * share;
        let columns = group * Self::GROUP..(group + 1) * Self::GROUP;
        self.from.t().lines(start..start + share, &columns)
    }

    /// The columns of the strip that holds a row.
    #[inline(always)]
    pub(super) fn of(&self, row: usize) -> &[[f32; ROWS]] {
        self.numbers[row / ROWS * self.pitch..][..self.depth.len() * ROWS]
            .as_chunks()
            .0
    }
}
