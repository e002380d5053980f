//! The right operand of a product of `bf16`, in panels of columns whose numbers lie in pairs.

use std::ops::Range;
use std::sync::Arc;

use bytemuck::cast_ref;
use half::bf16;
use multiversion::multiversion;

use super::square::{self, SIDE};
use crate::cpu::coded::Coded;
use crate::cpu::depth::{BLOCK_DEPTH, Depth, DepthGroups};
use crate::cpu::matmul::right::decoded;
use crate::cpu::matrix::Matrix;
use crate::cpu::parts::{By, cut};
use crate::cpu::prefetch::prefetch;
use crate::cpu::real::Real;
use crate::pool::Buffer;
use crate::quantised::codes::{PIECE, Pairs};

/// The rows and the columns of a tile.
pub(crate) const TILE: usize = 32;

/// The sums of a tile, row by row.
pub(crate) type Tile = [[f32; TILE]; TILE];

/// The depth of an operand in memory is a multiple of this: what an AMX tile holds. The rest is zeros.
const UNIT: usize = 32;

/// The depth in memory.
pub(crate) fn padded(depth: usize) -> usize {
    depth.next_multiple_of(UNIT)
}

/// The depth in memory. Each segment begins a pair of its own.
pub(crate) fn padded_in(depth: Depth<'_>) -> usize {
    depth.segments().map(|segment| padded(segment.len())).sum()
}

/// How many numbers memory has that a product needs for this many while it runs. It has few sizes, so that it
/// is used again for operands with other numbers of rows, as experts have them.
pub(crate) fn room(count: usize) -> usize {
    count.next_power_of_two()
}

/// The packed right operand of products: panels of 32 columns. A panel has, for each two rows, the pairs of
/// its columns: `[pair][column][2]`, segment by segment. The columns that pad the last panel are zeros.
pub(crate) struct Panels {
    numbers: Buffer<bf16>,
    depth: usize,
    groups: Option<Arc<DepthGroups>>,
    columns: usize,
}

impl Panels {
    /// How many numbers the packed copy of a matrix of this size holds.
    pub(crate) fn count(rows: usize, columns: usize) -> usize {
        padded(rows) * columns.next_multiple_of(TILE)
    }

    /// Packs a matrix. Numbers of `f32` are rounded. With `groups`, its rows are added up in these groups.
    pub(crate) fn new(from: impl Source, groups: Option<&Arc<DepthGroups>>) -> Self {
        let [rows, columns] = from.sizes();
        let room = padded_in(Depth::new(rows, groups)) * columns.next_multiple_of(TILE);
        Self::in_room(from, groups, room)
    }

    /// Packs a matrix for one product. Memory for such copies has few sizes, so that it is used again for
    /// matrices with other numbers of rows.
    pub(crate) fn once(from: impl Source, groups: Option<&Arc<DepthGroups>>) -> Self {
        let [rows, columns] = from.sizes();
        let rows = padded_in(Depth::new(rows, groups)).next_power_of_two();
        Self::in_room(from, groups, Self::count(rows, columns))
    }

    fn in_room(from: impl Source, groups: Option<&Arc<DepthGroups>>, room: usize) -> Self {
        let mut numbers = Buffer::pooled(room);
        let [rows, columns] = from.sizes();
        let depth = Depth::new(rows, groups);
        let panel = TILE * padded_in(depth);
        let packed = &mut numbers[..panel * columns.div_ceil(TILE)];
        cut(By(packed, panel), panel, |first, to| {
            pack(to, from, first * TILE, depth);
        });
        Self { numbers, depth: rows, groups: groups.cloned(), columns }
    }

    /// As [`Panels::new`], by this thread alone, added up from first to last.
    pub(crate) fn alone<N: Real>(from: Matrix<'_, N>) -> Self {
        let mut numbers = Buffer::pooled(Self::count(from.rows, from.columns));
        pack(&mut numbers, from, 0, Depth::Whole(from.rows));
        Self { numbers, depth: from.rows, groups: None, columns: from.columns }
    }

    /// The panel with this number.
    pub(crate) fn panel(&self, index: usize) -> &[bf16] {
        let length = TILE * padded(self.depth);
        &self.numbers[index * length..][..length]
    }
}

impl std::fmt::Debug for Panels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Panels({} x {})", self.depth, self.columns)
    }
}

/// The right operand of a product.
#[derive(Clone, Copy)]
pub(crate) enum Right<'a> {
    /// Packed before, and used for several products.
    Panels(&'a Panels),
    /// To be packed block by block, for this product only.
    Matrix(Matrix<'a, bf16>),
    /// The same, for a product that is added up in groups.
    InGroups(Matrix<'a, bf16>, &'a Arc<DepthGroups>),
    /// To be decoded, rounded and packed block by block, for this product only.
    Coded(Coded<'a>, Option<&'a Arc<DepthGroups>>),
}

impl<'a> Right<'a> {
    /// Its rows, in the order in which they are added up.
    pub(crate) fn depth(self) -> Depth<'a> {
        match self {
            Self::Panels(panels) => Depth::new(panels.depth, panels.groups.as_ref()),
            Self::Matrix(matrix) => Depth::Whole(matrix.rows),
            Self::InGroups(_, groups) => Depth::InGroups(groups),
            Self::Coded(matrix, groups) => Depth::new(matrix.rows(), groups),
        }
    }

    /// The number of columns.
    pub(crate) fn columns(self) -> usize {
        match self {
            Self::Panels(panels) => panels.columns,
            Self::Matrix(matrix) | Self::InGroups(matrix, _) => matrix.columns,
            Self::Coded(matrix, _) => matrix.columns(),
        }
    }

    /// Packs all of it, for one product. `None` if it is packed.
    pub(crate) fn packed_once(self) -> Option<Panels> {
        match self {
            Self::Panels(_) => None,
            Self::Matrix(matrix) => Some(Panels::once(matrix, None)),
            Self::InGroups(matrix, groups) => Some(Panels::once(matrix, Some(groups))),
            Self::Coded(matrix, groups) => {
                let rows = padded_in(Depth::new(matrix.rows(), groups));
                Some(Panels::in_room(matrix, groups, decoded([rows, matrix.columns()])))
            }
        }
    }

    /// Room for a block of this many columns, if blocks are packed for this product.
    pub(crate) fn room(self, columns: usize) -> Option<Buffer<bf16>> {
        match self {
            Self::Panels(_) => None,
            Self::Matrix(_) | Self::InGroups(..) | Self::Coded(..) => {
                Some(Buffer::pooled(room(Panels::count(padded_in(self.depth()), columns))))
            }
        }
    }

    /// The panels of some columns, whose first one starts a panel. Packs them into the room if they are not
    /// packed yet.
    pub(crate) fn panels(self, columns: Range<usize>, room: &'a mut Option<Buffer<bf16>>) -> &'a [bf16] {
        let depth = padded_in(self.depth());
        let count = columns.len().next_multiple_of(TILE) * depth;
        match (self, room) {
            (Self::Matrix(matrix) | Self::InGroups(matrix, _), Some(room)) => {
                let to = &mut room[..count];
                pack(to, matrix, columns.start, self.depth());
                to
            }
            (Self::Coded(matrix, _), Some(room)) => {
                let to = &mut room[..count];
                pack(to, matrix, columns.start, self.depth());
                to
            }
            (Self::Panels(panels), _) => &panels.numbers[columns.start * depth..][..count],
            (_, None) => unreachable!("`room` is asked for first"),
        }
    }
}

/// What panels are packed from.
pub(crate) trait Source: Copy + Sync {
    /// Its rows and its columns.
    fn sizes(self) -> [usize; 2];

    /// Fills a panel, or the part of it for these rows, with some columns.
    fn pack_rows(self, to: &mut [[u32; TILE]], rows: Range<usize>, columns: Range<usize>);
}

impl<N: Real> Source for Matrix<'_, N> {
    fn sizes(self) -> [usize; 2] {
        [self.rows, self.columns]
    }

    fn pack_rows(self, to: &mut [[u32; TILE]], rows: Range<usize>, columns: Range<usize>) {
        let from = self.part(rows);
        if from.turned {
            pack_turned(to, from, columns);
        } else {
            pack_rows(to, from, columns);
        }
    }
}

impl Source for Coded<'_> {
    fn sizes(self) -> [usize; 2] {
        [self.rows(), self.columns()]
    }

    /// Decodes as many rows at a time as stay in the first-level cache.
    fn pack_rows(self, to: &mut [[u32; TILE]], rows: Range<usize>, columns: Range<usize>) {
        let are_pieces =
            |places: &Range<usize>| places.start.is_multiple_of(PIECE) && places.len().is_multiple_of(PIECE);
        match self.is_turned() {
            true if are_pieces(&rows) => return self.pack_lines_in_pairs(to, rows, columns),
            false if are_pieces(&columns) => return self.pack_strip(to, rows, columns.start),
            _ => {}
        }
        let mut room = Buffer::pooled(BLOCK_DEPTH * TILE);
        let parts = rows.clone().step_by(BLOCK_DEPTH).zip(to.chunks_mut(BLOCK_DEPTH / 2));
        for (first, to) in parts {
            let rows = first..rows.end.min(first + BLOCK_DEPTH);
            let (depth, width) = (0..rows.len(), 0..columns.len());
            self.part(rows, columns.clone(), &mut room).pack_rows(to, depth, width);
        }
    }
}

/// The distance between decoded lines, in pairs: not a power of two.
const APART: usize = BLOCK_DEPTH / 2 + SIDE;

impl Coded<'_> {
    /// [`Source::pack_rows`] where rows are rows of blocks, and the columns are a piece of each.
    fn pack_strip(self, to: &mut [[u32; TILE]], rows: Range<usize>, first: usize) {
        let mut room = Buffer::<u32>::pooled(BLOCK_DEPTH * TILE / 2);
        let (pieces, _) = room.as_chunks_mut();
        let parts = rows.clone().step_by(BLOCK_DEPTH).zip(to.chunks_mut(BLOCK_DEPTH / 2));
        for (row, to) in parts {
            let rows = row..rows.end.min(row + BLOCK_DEPTH);
            let pieces = &mut pieces[..rows.len()];
            self.strip_in_halves(rows, first / PIECE, pieces);
            interleave(to, pieces);
        }
    }

    /// [`Source::pack_rows`] where columns are rows of blocks: decodes sixteen of them, and turns squares.
    fn pack_lines_in_pairs(self, to: &mut [[u32; TILE]], rows: Range<usize>, columns: Range<usize>) {
        let mut room = Buffer::<u32>::pooled(SIDE * APART);
        for half in 0..TILE / SIDE {
            let lines = columns.start + half * SIDE..columns.end;
            let parts = rows.clone().step_by(BLOCK_DEPTH).zip(to.chunks_mut(BLOCK_DEPTH / 2));
            for (first, to) in parts {
                let length = to.len();
                let mut lines = lines.clone();
                for room in room.chunks_exact_mut(APART) {
                    let (pieces, _) = room[..length].as_chunks_mut();
                    match lines.next() {
                        Some(line) => self.line_in_halves(line, first / PIECE, pieces),
                        None => pieces.as_flattened_mut().fill(0),
                    }
                }
                let to = to.as_flattened_mut();
                for at in (0..length).step_by(SIDE) {
                    square::turn((&room[at..], APART), (&mut to[at * TILE + half * SIDE..], TILE));
                }
            }
        }
    }
}

/// Puts rows of numbers into pairs. What is missing at the end is zero.
#[multiversion(targets = "simd")]
fn interleave(to: &mut [[u32; TILE]], rows: &[Pairs]) {
    let (pairs, last) = rows.as_chunks::<2>();
    to[pairs.len()..].as_flattened_mut().fill(0);
    let (whole, rest) = to.split_at_mut(pairs.len());
    for (to, [first, second]) in whole.iter_mut().zip(pairs) {
        let [first, second]: [&[u16; TILE]; 2] = [cast_ref(first), cast_ref(second)];
        for ((to, &first), &second) in to.iter_mut().zip(first).zip(second) {
            *to = u32::from(first) | u32::from(second) << 16;
        }
    }
    if let ([to, ..], [last]) = (rest, last) {
        let last: &[u16; TILE] = cast_ref(last);
        to.iter_mut().zip(last).for_each(|(to, &number)| *to = u32::from(number));
    }
}

/// Fills whole panels with the columns of a matrix from this one on.
pub(crate) fn pack(to: &mut [bf16], from: impl Source, first: usize, depth: Depth<'_>) {
    let [_, all] = from.sizes();
    let pairs: &mut [[u32; TILE]] = bytemuck::cast_slice_mut(to);
    let panels = pairs.chunks_exact_mut(padded_in(depth) / 2);
    for (index, mut panel) in panels.enumerate() {
        let first = first + index * TILE;
        let columns = first..all.min(first + TILE);
        for segment in depth.segments() {
            let (to, rest) = panel.split_at_mut(padded(segment.len()) / 2);
            from.pack_rows(to, segment.range(), columns.clone());
            panel = rest;
        }
    }
}

/// Two numbers as they lie in memory.
#[inline(always)]
fn pair<N: Real>(first: N, second: N) -> u32 {
    u32::from(first.half().to_bits()) | u32::from(second.half().to_bits()) << 16
}

/// How many pairs of rows ahead are prefetched. A panel takes few numbers of a row, so the machine does not
/// see by itself what is read next.
const AHEAD: usize = 8;

#[multiversion(targets = "simd")]
fn pack_rows<N: Real>(panel: &mut [[u32; TILE]], from: Matrix<'_, N>, columns: Range<usize>) {
    let row = |row: usize| &from.numbers[row * from.stride..][columns.clone()];
    let width = columns.len();
    for (index, to) in panel.iter_mut().enumerate() {
        for next in [0, 1] {
            prefetch(from.numbers, (2 * (index + AHEAD) + next) * from.stride + columns.start);
        }
        let rest = from.rows.saturating_sub(2 * index);
        if rest >= 2 && width == TILE {
            let [a, b]: [&[N; TILE]; 2] =
                [0, 1].map(|next| row(2 * index + next).first_chunk().expect("a panel"));
            for ((to, &a), &b) in to.iter_mut().zip(a).zip(b) {
                *to = pair(a, b);
            }
            continue;
        }
        to.fill(0);
        match rest {
            0 => {}
            1 => {
                for (to, &a) in to.iter_mut().zip(row(2 * index)) {
                    *to = pair(a, N::narrow(0.0));
                }
            }
            _ => {
                for ((to, &a), &b) in to.iter_mut().zip(row(2 * index)).zip(row(2 * index + 1)) {
                    *to = pair(a, b);
                }
            }
        }
    }
}

/// Turns blocks of 16 columns and 16 pairs.
#[multiversion(targets = "simd")]
fn pack_turned<N: Real>(panel: &mut [[u32; TILE]], from: Matrix<'_, N>, columns: Range<usize>) {
    let mut lines = [[0_u32; SIDE]; SIDE];
    for (block, to) in panel.chunks_exact_mut(SIDE).enumerate() {
        let depth = 2 * SIDE * block..from.rows.min(2 * SIDE * (block + 1));
        for half in 0..TILE / SIDE {
            for (column, line) in (columns.start + half * SIDE..).zip(&mut lines) {
                if column < columns.end {
                    pair_up(line, &from.numbers[column * from.stride..][depth.clone()]);
                } else {
                    line.fill(0);
                }
            }
            let to = &mut to.as_flattened_mut()[half * SIDE..];
            square::turn((lines.as_flattened(), SIDE), (to, TILE));
        }
    }
}

/// The pairs of a line. What is missing at its end is zero.
#[inline(always)]
fn pair_up<N: Real>(to: &mut [u32], from: &[N]) {
    let (pairs, rest) = from.as_chunks::<2>();
    if pairs.len() < to.len() {
        to.fill(0);
    }
    for (to, &[a, b]) in to.iter_mut().zip(pairs) {
        *to = pair(a, b);
    }
    if let &[last] = rest {
        to[pairs.len()] = pair(last, N::narrow(0.0));
    }
}
