//! The left operand of a product if its columns are contiguous: packed in strips of rows.

use std::ops::Range;

use super::pack::pack;
use crate::cpu::matrix::Matrix;
use crate::cpu::prefetch::{LINE, Lines};
use crate::cpu::tile::{Left, ROWS};
use crate::pool::Buffer;

/// A transposed left operand in the order in which tiles read it: strips of eight rows, each column by
/// column. Each group of strips is packed right before it is read.
pub(super) struct Strips<'a> {
    from: Matrix<'a>,
    depth: Range<usize>,
    /// The distance between strips, in numbers. It is more than a strip's size, because strips that are a
    /// power of two apart would use the same sets of the first-level cache.
    pitch: usize,
    numbers: Buffer,
}

/// How many numbers the strips of a left operand of this size take.
pub(super) fn numbers(rows: usize, depth: usize) -> usize {
    rows.div_ceil(ROWS) * pitch(depth)
}

/// The distance between strips of this many columns, in numbers.
fn pitch(depth: usize) -> usize {
    depth * ROWS + 2 * LINE
}

impl<'a> Strips<'a> {
    /// How many rows are packed at once: two cache lines. The threads share the output in groups of this
    /// size.
    pub(super) const GROUP: usize = 2 * LINE;

    /// Strips with room for the columns `depth` of a transposed matrix.
    pub(super) fn new(from: Matrix<'a>, depth: &Range<usize>) -> Self {
        Self {
            from,
            depth: depth.clone(),
            pitch: pitch(depth.len()),
            numbers: Buffer::pooled(numbers(from.rows, depth.len())),
        }
    }

    /// Prepares a row of tiles. If it starts a group and this is the `first` block of columns, packs the
    /// group. Returns memory to prefetch meanwhile: a share of what the next group is packed from.
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

    /// The left operand of a row of tiles.
    #[inline(always)]
    pub(super) fn of(&self, row: usize) -> Left<'_> {
        Left {
            numbers: &self.numbers[row / ROWS * self.pitch + row % ROWS..],
            row: 1,
            column: ROWS,
        }
    }
}
