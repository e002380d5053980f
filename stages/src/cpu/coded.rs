//! A quantised matrix as an operand of products. It is decoded piece by piece into a cache, and every product
//! has the bits that the same numbers in `f32` give.

use std::ops::Range;

use super::matrix::Matrix;
use crate::quantised::Quantised;
use crate::quantised::codes::Pairs;
use crate::quantised::decode::decode_strip;

/// A view of a quantised matrix. Its rows or its columns are rows of blocks.
#[derive(Clone, Copy)]
pub(crate) struct Coded<'a> {
    matrix: &'a Quantised,
    /// Whether its columns are rows of blocks, instead of its rows.
    turned: bool,
}

impl<'a> Coded<'a> {
    /// A matrix as it lies in memory.
    pub(crate) fn new(matrix: &'a Quantised) -> Self {
        Self { matrix, turned: false }
    }

    /// The matrix of blocks, and whether its rows are columns here.
    pub(super) fn stored(self) -> (&'a Quantised, bool) {
        (self.matrix, self.turned)
    }

    /// The transpose.
    pub(crate) fn t(self) -> Self {
        Self { turned: !self.turned, ..self }
    }

    pub(crate) fn rows(self) -> usize {
        if self.turned { self.matrix.columns() } else { self.matrix.rows() }
    }

    pub(crate) fn columns(self) -> usize {
        if self.turned { self.matrix.rows() } else { self.matrix.columns() }
    }

    /// Whether its columns are rows of blocks, instead of its rows.
    pub(crate) fn is_turned(self) -> bool {
        self.turned
    }

    /// Decodes these places of a column, if columns are rows of blocks, or else of a row.
    pub(crate) fn line(self, line: usize, places: Range<usize>, to: &mut [f32]) {
        self.matrix.decode(line, places, to);
    }

    /// The same, in pairs of `bf16`, of whole pieces from this one on.
    pub(crate) fn line_in_halves(self, line: usize, first: usize, to: &mut [Pairs]) {
        self.matrix.decode_halves(line, first, to);
    }

    /// The same, of the piece with this number of each of some rows.
    pub(crate) fn strip_in_halves(self, rows: Range<usize>, piece: usize, to: &mut [Pairs]) {
        let mut rest = to;
        for (kind, bytes, count) in self.matrix.runs(rows) {
            let (here, after) = rest.split_at_mut(count);
            decode_strip(kind, bytes, piece, here);
            rest = after;
        }
    }

    /// Decodes these rows and columns into the room.
    pub(crate) fn part(self, rows: Range<usize>, columns: Range<usize>, room: &mut [f32]) -> Matrix<'_> {
        let (lines, places) = if self.turned { (columns, rows) } else { (rows, columns) };
        let width = places.len();
        let room = &mut room[..lines.len() * width];
        for (line, to) in lines.zip(room.chunks_exact_mut(width.max(1))) {
            self.matrix.decode(line, places.clone(), to);
        }
        let part = Matrix::new(room, width);
        if self.turned { part.t() } else { part }
    }
}
