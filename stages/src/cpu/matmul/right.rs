//! The right operand of a product, packed in panels of columns.

use std::ops::Range;
use std::sync::Arc;

use bytemuck::{cast_slice, cast_slice_mut};

use super::pack::{PANEL, pack};
use crate::cpu::bf16_kernels::square::{self, SIDE};
use crate::cpu::coded::Coded;
use crate::cpu::depth::{BLOCK_DEPTH, Depth, DepthBlock, DepthGroups};
use crate::cpu::matrix::Matrix;
use crate::cpu::parts::{By, cut};
use crate::cpu::prefetch::{LINE, Lines};
use crate::cpu::small::View;
use crate::pool::Buffer;

/// The packed right operand of products. Order: blocks of the depth; in each block its panels of 32 columns;
/// in each panel its rows. The columns that pad the last panel hold arbitrary numbers.
pub(crate) struct Packed {
    numbers: Buffer,
    depth: usize,
    groups: Option<Arc<DepthGroups>>,
    columns: usize,
}

impl Packed {
    /// How many numbers the packed copy of a matrix of this size holds.
    pub(crate) fn count(rows: usize, columns: usize) -> usize {
        rows * columns.next_multiple_of(PANEL)
    }

    /// Packs a matrix. With `groups`, its rows are added up in these groups.
    pub(crate) fn new(from: Matrix<'_>, groups: Option<&Arc<DepthGroups>>) -> Self {
        Self::in_room(from, groups, Self::count(from.rows, from.columns))
    }

    /// Packs a matrix for one product. Memory for such copies has few sizes, so that it is used again for
    /// matrices with other numbers of rows.
    pub(crate) fn once(from: impl Source, groups: Option<&Arc<DepthGroups>>) -> Self {
        let [rows, columns] = from.sizes();
        Self::in_room(from, groups, Self::count(rows.next_power_of_two(), columns))
    }

    fn in_room(from: impl Source, groups: Option<&Arc<DepthGroups>>, room: usize) -> Self {
        let [depth, columns] = from.sizes();
        let width = columns.next_multiple_of(PANEL);
        let mut numbers = Buffer::pooled(room);
        for block in Depth::new(depth, groups).blocks() {
            let to = &mut numbers[block.before * width..][..block.len * width];
            let panel = block.len * PANEL;
            cut(By(to, panel), 2 * panel, |first, to| {
                let here = first * PANEL..columns.min(first * PANEL + to.len() / block.len);
                from.pack_block(to, block, here);
            });
        }
        Self { numbers, depth, groups: groups.cloned(), columns }
    }

    fn depth(&self) -> Depth<'_> {
        Depth::new(self.depth, self.groups.as_ref())
    }

    /// The panels of a block.
    fn block(&self, depth: DepthBlock<'_>, columns: &Range<usize>) -> &[f32] {
        let width = self.columns.next_multiple_of(PANEL);
        let panels = &self.numbers[depth.before * width..][..depth.len * width];
        &panels[columns.start * depth.len..columns.end.next_multiple_of(PANEL) * depth.len]
    }
}

/// How many numbers the memory has into which the threads decode a whole matrix, for one product. It is a
/// power of two, so memory for all matrices of a stage is at most twice as large as memory for the largest
/// one.
pub(crate) fn decoded([depth, columns]: [usize; 2]) -> usize {
    Packed::count(depth.next_power_of_two(), columns).next_power_of_two()
}

/// What panels are packed from.
pub(crate) trait Source: Copy + Sync {
    /// Its rows and its columns.
    fn sizes(self) -> [usize; 2];

    /// Copies the rows of a block, segment by segment, into panels of some columns.
    fn pack_block(self, to: &mut [f32], block: DepthBlock<'_>, columns: Range<usize>);
}

impl Source for Matrix<'_> {
    fn sizes(self) -> [usize; 2] {
        [self.rows, self.columns]
    }

    #[inline(always)]
    fn pack_block(self, to: &mut [f32], block: DepthBlock<'_>, columns: Range<usize>) {
        let mut at = 0;
        for segment in block.segments() {
            pack::<PANEL>(&mut to[at * PANEL..], block.len * PANEL, self, segment.range(), columns.clone());
            at += segment.len();
        }
    }
}

/// How many columns of a quantised matrix are decoded at a time, if its rows are rows of blocks.
const WIDE: usize = 256;

impl Source for Coded<'_> {
    fn sizes(self) -> [usize; 2] {
        [self.rows(), self.columns()]
    }

    /// Decodes some rows and columns after the others: as many as stay in the first-level cache.
    fn pack_block(self, to: &mut [f32], block: DepthBlock<'_>, columns: Range<usize>) {
        if self.is_turned() {
            return self.pack_lines(to, block, columns);
        }
        const ROWS: usize = BLOCK_DEPTH * PANEL / WIDE;
        let (mut room, pitch) = (Buffer::pooled(ROWS * WIDE), block.len * PANEL);
        let mut at = 0;
        for segment in block.segments() {
            for first in columns.clone().step_by(WIDE) {
                let here = first..columns.end.min(first + WIDE);
                let to = &mut to[(first - columns.start) / PANEL * pitch..];
                for row in segment.range().step_by(ROWS) {
                    let rows = row..segment.end.min(row + ROWS);
                    let (depth, width) = (0..rows.len(), 0..here.len());
                    let to = &mut to[(at + row - segment.start) * PANEL..];
                    pack::<PANEL>(to, pitch, self.part(rows, here.clone(), &mut room), depth, width);
                }
            }
            at += segment.len();
        }
    }
}

/// The distance between decoded lines, in numbers. Lines that are a power of two apart would use the same
/// sets of the first-level cache.
const APART: usize = BLOCK_DEPTH + LINE;

impl Coded<'_> {
    /// [`Source::pack_block`] where columns are rows of blocks: decodes sixteen of them, and turns squares.
    fn pack_lines(self, to: &mut [f32], block: DepthBlock<'_>, columns: Range<usize>) {
        let (mut room, pitch) = (Buffer::pooled(SIDE * APART), block.len * PANEL);
        let mut at = 0;
        for segment in block.segments() {
            for first in columns.clone().step_by(SIDE) {
                let place = first - columns.start;
                let to = &mut to[place / PANEL * pitch + at * PANEL + place % PANEL..];
                for (line, room) in (first..columns.end).zip(room.chunks_exact_mut(APART)) {
                    self.line(line, segment.range(), &mut room[..segment.len()]);
                }
                turn_lines(to, &room, segment.len());
            }
            at += segment.len();
        }
    }
}

/// Makes columns of sixteen lines of this length.
fn turn_lines(to: &mut [f32], lines: &[f32], length: usize) {
    let whole = length / SIDE * SIDE;
    for at in (0..whole).step_by(SIDE) {
        let (from, to) = (cast_slice(&lines[at..]), cast_slice_mut(&mut to[at * PANEL..]));
        square::turn((from, APART), (to, PANEL));
    }
    for at in whole..length {
        for (line, to) in to[at * PANEL..][..SIDE].iter_mut().enumerate() {
            *to = lines[line * APART + at];
        }
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
    /// The same, for a product that is added up in groups.
    InGroups(Matrix<'a>, &'a Arc<DepthGroups>),
    /// To be decoded and packed block by block, for this product only.
    Coded(Coded<'a>, Option<&'a Arc<DepthGroups>>),
}

impl<'a> Right<'a> {
    /// Its rows, in the order in which they are added up.
    pub(crate) fn depth(self) -> Depth<'a> {
        match self {
            Self::Packed(packed) => packed.depth(),
            Self::Matrix(matrix) => Depth::Whole(matrix.rows),
            Self::InGroups(_, groups) => Depth::InGroups(groups),
            Self::Coded(matrix, groups) => Depth::new(matrix.rows(), groups),
        }
    }

    /// The number of columns.
    pub(crate) fn columns(self) -> usize {
        match self {
            Self::Packed(packed) => packed.columns,
            Self::Matrix(matrix) | Self::InGroups(matrix, _) => matrix.columns,
            Self::Coded(matrix, _) => matrix.columns(),
        }
    }

    /// Packs all of it, for one product. `None` if it is packed.
    pub(crate) fn packed_once(self) -> Option<Packed> {
        match self {
            Self::Packed(_) => None,
            Self::Matrix(matrix) => Some(Packed::once(matrix, None)),
            Self::InGroups(matrix, groups) => Some(Packed::once(matrix, Some(groups))),
            Self::Coded(matrix, groups) => Some(Packed::in_room(matrix, groups, decoded(matrix.sizes()))),
        }
    }

    /// Whether it can be read as it is, row by row: see [`Right::panel`].
    pub(crate) fn has_rows(self) -> bool {
        match self {
            Self::Packed(_) => true,
            Self::Matrix(matrix) | Self::InGroups(matrix, _) => !matrix.turned,
            Self::Coded(..) => false,
        }
    }

    /// The columns from `first` on, where a panel begins. For one block of the depth that can be read as it
    /// is.
    #[inline(always)]
    pub(crate) fn panel(self, first: usize) -> View<'a> {
        match self {
            Self::Packed(packed) => View { numbers: &packed.numbers[first * packed.depth..], stride: PANEL },
            Self::Matrix(matrix) | Self::InGroups(matrix, _) => {
                View { numbers: &matrix.numbers[first..], stride: matrix.stride }
            }
            Self::Coded(..) => unreachable!("it has no rows to read"),
        }
    }

    /// What to prefetch while the tiles from this row of the output on are computed: of what is packed, the
    /// block itself, while it is read for the first time; else, a share of what the `next` columns are packed
    /// from.
    #[inline(always)]
    pub(crate) fn lines(
        &self,
        block: DepthBlock<'_>,
        [columns, next]: [&Range<usize>; 2],
        [row, height, rows]: [usize; 3],
    ) -> Lines<'a> {
        match self {
            Self::Packed(packed) if row == 0 => Lines::all(packed.block(block, columns)),
            Self::Matrix(matrix) | Self::InGroups(matrix, _) if !matrix.turned => {
                let depth = block.start();
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
        block: DepthBlock<'_>,
        columns: &Range<usize>,
        to: &'a mut Buffer,
    ) -> &'a [f32] {
        match self {
            Self::Packed(packed) => packed.block(block, columns),
            Self::Matrix(matrix) | Self::InGroups(matrix, _) => {
                let length = columns.len().next_multiple_of(PANEL) * block.len;
                matrix.pack_block(to, block, columns.clone());
                &to[..length]
            }
            Self::Coded(matrix, _) => {
                let length = columns.len().next_multiple_of(PANEL) * block.len;
                matrix.pack_block(to, block, columns.clone());
                &to[..length]
            }
        }
    }
}
