//! The right operand of a product, packed in panels of columns.

use std::ops::Range;

use super::pack::{DEPTH, PANEL, blocks, pack};
use crate::cpu::matrix::Matrix;
use crate::cpu::parts::{By, cut};
use crate::cpu::prefetch::Lines;
use crate::pool::Buffer;

/// The right operand of products: blocks of the depth, in each the panels of 32 columns one after the other, each row by row.
/// Columns that fill up the last panel hold any numbers.
pub(crate) struct Packed {
    numbers: Buffer,
    depth: usize,
    columns: usize,
}

impl Packed {
    /// Numbers of a copy of a matrix of so many rows and columns.
    pub(crate) fn count(rows: usize, columns: usize) -> usize {
        rows * columns.next_multiple_of(PANEL)
    }

    /// A copy of a matrix.
    pub(crate) fn new(from: Matrix<'_>) -> Self {
        let width = from.columns.next_multiple_of(PANEL);
        let mut numbers = Buffer::pooled(Self::count(from.rows, from.columns));
        for (to, depth) in numbers.chunks_mut(DEPTH * width).zip(blocks(from.rows)) {
            let panel = depth.len() * PANEL;
            cut(By(to, panel), 2 * panel, |first, to| {
                let columns = first * PANEL..from.columns.min(first * PANEL + to.len() / depth.len());
                pack::<PANEL>(to, panel, from, depth.clone(), columns);
            });
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

impl std::fmt::Debug for Packed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Packed({} x {})", self.depth, self.columns)
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

impl<'a> Right<'a> {
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

    /// What a block is packed from: one of as many equal shares.
    #[inline(always)]
    pub(super) fn lines(
        &self,
        depth: &Range<usize>,
        columns: &Range<usize>,
        (share, shares): (usize, usize),
    ) -> Lines<'a> {
        match self {
            Self::Matrix(matrix) if !matrix.turned => {
                let rows = depth.len().div_ceil(shares);
                let start = depth.start + share * rows;
                matrix.lines(start..start + rows, columns)
            }
            _ => Lines::NONE,
        }
    }

    /// The panels of a block, which are packed into `to` where they are not yet.
    #[inline(always)]
    pub(super) fn panels(
        &'a self,
        depth: &Range<usize>,
        columns: &Range<usize>,
        to: &'a mut Buffer,
    ) -> &'a [f32] {
        match self {
            Self::Packed(packed) => packed.block(depth, columns),
            Self::Matrix(matrix) => {
                let length = columns.len().next_multiple_of(PANEL) * depth.len();
                pack::<PANEL>(to, depth.len() * PANEL, *matrix, depth.clone(), columns.clone());
                &to[..length]
            }
        }
    }
}
