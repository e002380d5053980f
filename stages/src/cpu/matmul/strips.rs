//! The left operand of a product if its columns are contiguous: packed in strips of rows.

use std::ops::Range;

use super::pack::pack;
use crate::cpu::matrix::Matrix;
use crate::cpu::prefetch::{LINE, Lines};
use crate::cpu::tile::{Left, MANY_ROWS, ROWS};
use crate::pool::Buffer;

/// A transposed left operand in the order in which tiles read it: strips of rows, each column by column. Each
/// group of strips is packed right before it is read.
pub(crate) struct Strips<'a> {
    from: Matrix<'a>,
    depth: Range<usize>,
    /// The rows of a strip: as many as the highest tile.
    rows: usize,
    /// The distance between strips, in numbers.
    pitch: usize,
    numbers: Buffer,
}

/// How many rows strips have if large products have tiles of many rows, or not.
fn rows_of_strip(many_rows: bool) -> usize {
    if many_rows { MANY_ROWS } else { ROWS }
}

/// How many numbers the strips of a left operand of this size take. There is room for a depth that is a power
/// of two: experts have other numbers of rows in each micro-batch, and few sizes are used again more often.
pub(crate) fn numbers(many_rows: bool, rows: usize, depth: usize) -> usize {
    let of_strip = rows_of_strip(many_rows);
    rows.div_ceil(of_strip) * pitch(of_strip, depth.next_power_of_two())
}

/// The distance between strips of this many columns, in numbers. It is more than a strip's size, because
/// strips that are a power of two apart would use the same sets of the first-level cache.
fn pitch(rows: usize, depth: usize) -> usize {
    rows * depth + 2 * LINE
}

impl<'a> Strips<'a> {
    /// Strips with room for the columns `depth` of a transposed matrix.
    pub(crate) fn new(from: Matrix<'a>, depth: &Range<usize>, many_rows: bool) -> Self {
        let rows = rows_of_strip(many_rows);
        Self {
            from,
            depth: depth.clone(),
            rows,
            pitch: pitch(rows, depth.len()),
            numbers: Buffer::pooled(numbers(many_rows, from.rows, depth.len())),
        }
    }

    /// How many rows are packed at once: whole cache lines.
    fn group(&self) -> usize {
        4 * self.rows
    }

    /// Prepares a row of tiles. If it starts a group and this is the `first` block of columns, packs the
    /// group. Returns memory to prefetch meanwhile: a share of what the next group is packed from.
    #[inline(always)]
    pub(crate) fn reach(&mut self, row: usize, height: usize, first: bool) -> Lines<'a> {
        if !first {
            return Lines::NONE;
        }
        let (group, all) = (self.group(), self.depth.len());
        if row.is_multiple_of(group) {
            let rows = row..self.from.rows.min(row + group);
            let to = &mut self.numbers[row / self.rows * self.pitch..];
            let pack = if self.rows == MANY_ROWS { pack::<MANY_ROWS> } else { pack::<ROWS> };
            pack(to, self.pitch, self.from.t(), self.depth.clone(), rows);
        }
        let share = |row: usize| self.depth.start + all * row / group;
        let next = row / group * group + group;
        let lines = share(row % group)..share(row % group + height);
        self.from.t().lines(lines, &(next..next + group))
    }

    /// The left operand of a row of tiles.
    #[inline(always)]
    pub(crate) fn of(&self, row: usize) -> Left<'_> {
        Left {
            numbers: &self.numbers[row / self.rows * self.pitch + row % self.rows..],
            row: 1,
            column: self.rows,
            is_copy: true,
        }
    }
}
