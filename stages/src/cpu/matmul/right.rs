//! The right operand of a product, packed in panels of columns.

use std::ops::Range;

use super::pack::{DEPTH, PANEL, blocks, pack};
use crate::cpu::matrix::Matrix;
use crate::cpu::parts::{By, cut};
use crate::cpu::prefetch::Lines;
use crate::cpu::small::View;
use crate::pool::Buffer;

/// The packed right operand of products. Order: blocks of the depth; in each block its panels of 32 columns;
/// in each panel its rows. The columns that pad the last panel hold arbitrary numbers.
pub(crate) struct Packed {
    numbers: Buffer,
    depth: usize,
    columns: usize,
}

impl Packed {
    /// How many numbers the packed copy of a matrix of this size holds.
    pub(crate) fn count(rows: usize, columns: usize) -> usize {
        rows * columns.next_multiple_of(PANEL)
    }

    /// Packs a matrix.
    pub(crate) fn new(from: Matrix<'_>) -> Self {
        Self::in_room(from, Self::count(from.rows, from.columns))
    }

    /// Packs a matrix for one product. Memory for such copies has few sizes, so that it is used again for
    /// matrices with other numbers of rows.
    pub(crate) fn once(from: Matrix<'_>) -> Self {
        Self::in_room(from, Self::count(from.rows.next_power_of_two(), from.columns))
    }

    fn in_room(from: Matrix<'_>, room: usize) -> Self {
        let width = from.columns.next_multiple_of(PANEL);
        let mut numbers = Buffer::pooled(room);
        let packed = &mut numbers[..Self::count(from.rows, from.columns)];
        for (to, depth) in packed.chunks_mut(DEPTH * width).zip(blocks(from.rows)) {
            let panel = depth.len() * PANEL;
            cut(By(to, panel), 2 * panel, |first, to| {
                let columns = first * PANEL..from.columns.min(first * PANEL + to.len() / depth.len());
                pack::<PANEL>(to, panel, from, depth.clone(), columns);
            });
        }
        Self { numbers, depth: from.rows, columns: from.columns }
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
    /// Packed before, and used for several products.
    Packed(&'a Packed),
    /// To be packed block by block, for this product only.
    Matrix(Matrix<'a>),
}

impl<'a> Right<'a> {
    /// The number of rows.
    pub(crate) fn depth(self) -> usize {
        match self {
            Self::Packed(packed) => packed.depth,
            Self::Matrix(matrix) => matrix.rows,
        }
    }

    /// The number of columns.
    pub(crate) fn columns(self) -> usize {
        match self {
            Self::Packed(packed) => packed.columns,
            Self::Matrix(matrix) => matrix.columns,
        }
    }

    /// Whether it can be read as it is, row by row: see [`Right::panel`].
    pub(crate) fn has_rows(self) -> bool {
        match self {
            Self::Packed(_) => true,
            Self::Matrix(matrix) => !matrix.turned,
        }
    }

    /// The columns from `first` on, where a panel begins. For one block of the depth that can be read as it
    /// is.
    #[inline(always)]
    pub(crate) fn panel(self, first: usize) -> View<'a> {
        match self {
            Self::Packed(packed) => View { numbers: &packed.numbers[first * packed.depth..], stride: PANEL },
            Self::Matrix(matrix) => View { numbers: &matrix.numbers[first..], stride: matrix.stride },
        }
    }

    /// What to prefetch while the tiles from this row of the output on are computed: of what is packed, the
    /// block itself, while it is read for the first time; else, a share of what the `next` columns are packed
    /// from.
    #[inline(always)]
    pub(crate) fn lines(
        &self,
        depth: &Range<usize>,
        [columns, next]: [&Range<usize>; 2],
        [row, height, rows]: [usize; 3],
    ) -> Lines<'a> {
        match self {
            Self::Packed(packed) if row == 0 => Lines::all(packed.block(depth, columns)),
            Self::Matrix(matrix) if !matrix.turned => {
                let share = |row: usize| depth.start + depth.len() * row.min(rows) / rows;
                matrix.lines(share(row)..share(row + height), next)
            }
            _ => Lines::NONE,
        }
    }

    /// The panels of a block. Packs them into `to` if they are not packed yet.
    #[inline(always)]
    pub(crate) fn panels(
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
