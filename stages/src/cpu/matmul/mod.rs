//! Products of large matrices: blocks of the operands in the cache, tiles of the output in registers.
//!
//! The blocking follows Goto and van de Geijn, "Anatomy of high-performance matrix multiplication" (2008).
//! Every number of the output is summed over the depth from first to last, in blocks of a fixed size, or in
//! groups, as [`Depth`](super::depth::Depth) says. So its bits depend only on its own row and column.

pub(crate) mod near;
pub(crate) mod pack;
pub(crate) mod right;
pub(crate) mod strips;

use pulp::{Arch, Simd, WithSimd};
use smallvec::SmallVec;

use self::strips::Strips;
use super::depth::{BLOCK_DEPTH, DepthBlock};
use super::elementwise;
use super::matrix::Matrix;
use super::parts::{By, PRODUCTS, cut, parts};
use super::prefetch::{Ahead, LINE, Lines, prefetch};
use super::tile::{self, FEW_ROWS, Left, MANY_ROWS, ROWS, STEP, is_tall, joined_tile, tile, wants_many_rows};
use crate::pool::Buffer;

pub(crate) use self::pack::{PANEL, pack};
pub(crate) use self::right::{Packed, Right};

/// The columns of a block. With its depth, a block is half a megabyte, so it fits in the second-level cache.
const BLOCK: usize = 256;

/// How many numbers a product needs while it runs: a packed block of the right operand, and a block of the
/// left operand, which is transposed and has `left_rows` rows.
pub(crate) fn scratch(left_rows: usize, depth: usize) -> usize {
    BLOCK * BLOCK_DEPTH + strips::numbers(wants_many_rows(), left_rows, depth.min(BLOCK_DEPTH))
}

/// Whether a product of this depth is added up before it is added to its start. So it has the bits of a
/// product that was computed by itself and then added.
pub(crate) fn is_added_up_first(depth: usize) -> bool {
    depth <= BLOCK_DEPTH
}

/// The threads of a rank share the output in groups of this number of rows.
const GROUP: usize = 32;

/// What the product is added to.
#[derive(Clone, Copy)]
pub(crate) enum Start<'a> {
    /// Nothing.
    Zero,
    /// This row, added to every row of the output.
    Row(&'a [f32]),
    /// The old contents of the output.
    Old,
}

impl Start<'_> {
    /// For a product that starts a sum, or adds to one.
    pub(crate) fn of_sum(is_new: bool) -> Self {
        if is_new { Self::Zero } else { Self::Old }
    }

    /// The part of it from this column on.
    #[inline(always)]
    pub(crate) fn from(self, column: usize) -> Self {
        match self {
            Self::Row(row) => Self::Row(&row[column..]),
            other => other,
        }
    }
}

/// `out = start + a b`. The rows of `out` are contiguous.
pub(crate) fn matmul(out: &mut [f32], start: Start<'_>, a: Matrix<'_>, b: Right<'_>) {
    assert_eq!(a.columns, b.depth().len(), "a has as many columns as b has rows");
    assert_eq!(out.len(), a.rows * b.columns(), "the product fills the output");
    if near::is_done(out, start, a, b) {
        return;
    }
    let columns = b.columns();
    let weight = GROUP * a.columns * columns / PRODUCTS;
    let once = match parts(a.rows / GROUP * weight) {
        1 => None,
        // Packed once here. Otherwise each thread would pack all of it.
        _ => b.packed_once(),
    };
    let b = once.as_ref().map_or(b, Right::Packed);
    cut(By(out, GROUP * columns), weight, |first, out| {
        let first = first * GROUP;
        let a = a.part(first..first + out.len() / columns);
        let many_rows = wants_many_rows();
        match b.depth().is_whole() {
            true => Arch::new().dispatch(Multiply::<false> { out, start, a, b, many_rows }),
            false => Arch::new().dispatch(Multiply::<true> { out, start, a, b, many_rows }),
        }
    });
}

/// A product, which may be added up in groups. The code for that would make other products slower.
struct Multiply<'a, const IN_GROUPS: bool> {
    out: &'a mut [f32],
    start: Start<'a>,
    a: Matrix<'a>,
    b: Right<'a>,
    /// Whether tiles have [`MANY_ROWS`] rows where there are enough registers.
    many_rows: bool,
}

impl<const IN_GROUPS: bool> WithSimd for Multiply<'_, IN_GROUPS> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        if is_tall::<S>() {
            self.run::<S, MANY_ROWS, ROWS>(simd)
        } else {
            self.run::<S, FEW_ROWS, FEW_ROWS>(simd)
        }
    }
}

impl<const IN_GROUPS: bool> Multiply<'_, IN_GROUPS> {
    /// Loops over blocks of the depth, then over blocks of columns, then over rows of tiles. Tiles have
    /// `TALL` or `LOW` rows.
    #[inline(always)]
    fn run<S: Simd, const TALL: usize, const LOW: usize>(self, simd: S) {
        let Self { out, start, a, b, many_rows } = self;
        let depth = b.depth();
        let mut packed = Buffer::pooled(BLOCK * BLOCK_DEPTH);
        let mut edge = Buffer::pooled(if a.turned { 0 } else { TALL * BLOCK_DEPTH });
        let first_start = if IN_GROUPS { Start::Zero } else { start };
        let mut sums = Sums::new(out);
        for block_depth in depth.blocks() {
            let (out, start) = match block_depth.onto {
                true => (sums.newest(), Start::Old),
                false => (sums.begin(), first_start),
            };
            let mut strips = a.turned.then(|| {
                let depth = block_depth.whole().expect("a transposed left operand is added up as it lies");
                Strips::new(a, &depth, many_rows)
            });
            for first in (0..b.columns()).step_by(BLOCK) {
                let columns = first..b.columns().min(first + BLOCK);
                let block = Block {
                    panels: b.panels(block_depth, &columns, &mut packed),
                    depth: block_depth,
                    width: columns.len(),
                    start: start.from(first),
                };
                let next = columns.end..b.columns().min(columns.end + BLOCK);
                let mut row = 0;
                while row < a.rows {
                    let height = if many_rows { height::<TALL, LOW>(a, row) } else { LOW };
                    let rows = height.min(a.rows - row);
                    let out =
                        Out { numbers: &mut out[row * b.columns() + first..], stride: b.columns(), rows };
                    let right = b.lines(block_depth, [&columns, &next], [row, height, a.rows]);
                    let (left, lines) = if let Some(strips) = &mut strips {
                        let lines = strips.reach(row, height, first == 0);
                        (strips.of(row), lines)
                    } else {
                        let lines = a.lines(row + height..row + 2 * height, &block_depth.start());
                        let rows = a.part(row..row + rows);
                        let left = in_place::<IN_GROUPS>(rows, height, block_depth, &mut edge);
                        (left, lines)
                    };
                    if height == TALL {
                        block.row_of_tiles::<S, TALL, IN_GROUPS>(simd, out, left, [lines, right]);
                    } else {
                        block.row_of_tiles::<S, LOW, IN_GROUPS>(simd, out, left, [lines, right]);
                    }
                    row += height;
                }
            }
            for _ in 0..block_depth.joined {
                sums.join();
            }
        }
        if IN_GROUPS {
            sums.add_start(start, b.columns());
        }
    }
}

/// The sums of a product in memory. The oldest one is made in the output.
struct Sums<'a> {
    out: &'a mut [f32],
    is_begun: bool,
    later: SmallVec<[Buffer; 4]>,
}

impl<'a> Sums<'a> {
    fn new(out: &'a mut [f32]) -> Self {
        Self { out, is_begun: false, later: SmallVec::new() }
    }

    /// A new sum, to be overwritten.
    fn begin(&mut self) -> &mut [f32] {
        if std::mem::replace(&mut self.is_begun, true) {
            self.later.push(Buffer::pooled(self.out.len()));
        }
        self.newest()
    }

    fn newest(&mut self) -> &mut [f32] {
        match self.later.last_mut() {
            Some(newest) => newest,
            None => self.out,
        }
    }

    /// Adds the newest sum to the one before.
    fn join(&mut self) {
        let newest = self.later.pop().expect("the tree has two sums");
        elementwise::add_here(self.newest(), &newest);
    }

    /// The product is what it starts with and the sum.
    fn add_start(&mut self, start: Start<'_>, columns: usize) {
        match start {
            Start::Zero => {}
            Start::Row(row) => {
                for out in self.out.chunks_exact_mut(columns) {
                    elementwise::add_here(out, row);
                }
            }
            Start::Old => unreachable!("a gradient of weights is not added up in groups"),
        }
    }
}

/// How many rows the tiles from this row on have. Low ones are taken where less is left than tall ones need,
/// and where rows are read in place and lie a multiple of four kilobytes apart. Such rows use the same sets
/// of the first-level cache, and a set holds no more than twelve lines.
#[inline(always)]
fn height<const TALL: usize, const LOW: usize>(a: Matrix<'_>, row: usize) -> usize {
    const APART: usize = 4096 / size_of::<f32>();
    let rest = a.rows - row;
    let two_fit = !a.turned && rest > TALL && rest <= 2 * LOW;
    let share_sets = !a.turned && a.stride.is_multiple_of(APART);
    if rest <= LOW || two_fit || share_sets { LOW } else { TALL }
}

/// The left operand of a row of tiles: the rows where they are, or a copy of them if they are fewer than a
/// tile has. What pads the copy is not written to the output.
#[inline(always)]
fn in_place<'a, const IN_GROUPS: bool>(
    rows: Matrix<'a>,
    height: usize,
    block: DepthBlock<'_>,
    edge: &'a mut [f32],
) -> Left<'a> {
    if rows.rows == height {
        let first = if IN_GROUPS { 0 } else { block.start().start };
        return Left { numbers: &rows.numbers[first..], row: rows.stride, column: 1, is_copy: false };
    }
    for (row, to) in (0..rows.rows).zip(edge.chunks_exact_mut(block.len)) {
        let mut at = 0;
        for segment in block.segments() {
            to[at..at + segment.len()].copy_from_slice(&rows.row(row)[segment.range()]);
            at += segment.len();
        }
    }
    Left { numbers: edge, row: block.len, column: 1, is_copy: true }
}

/// A row of tiles of the output.
struct Out<'a> {
    numbers: &'a mut [f32],
    stride: usize,
    rows: usize,
}

/// A packed block of the right operand.
#[derive(Clone, Copy)]
struct Block<'a> {
    panels: &'a [f32],
    depth: DepthBlock<'a>,
    width: usize,
    start: Start<'a>,
}

impl Block<'_> {
    /// Computes the tiles of one row of tiles, and prefetches what is read next.
    #[inline(always)]
    fn row_of_tiles<S: Simd, const HEIGHT: usize, const IN_GROUPS: bool>(
        self,
        simd: S,
        mut out: Out<'_>,
        left: Left<'_>,
        next: [Lines<'_>; 2],
    ) {
        let panels = self.panels.chunks_exact(PANEL * self.depth.len);
        let tiles = panels.len() * PANEL.div_ceil(2 * S::F32_LANES);
        let mut next = next.map(|lines| lines.in_turns(tiles * (self.depth.len / STEP).max(1)));
        for (index, panel) in panels.enumerate() {
            let lanes = S::F32_LANES;
            for part in (0..PANEL).step_by(2 * lanes) {
                let at = [index * PANEL, part];
                match self.width.saturating_sub(index * PANEL + part) {
                    0 => {}
                    few if few <= lanes => {
                        self.tile::<S, HEIGHT, 1, IN_GROUPS>(simd, &mut out, left, panel, at, &mut next)
                    }
                    _ => self.tile::<S, HEIGHT, 2, IN_GROUPS>(simd, &mut out, left, panel, at, &mut next),
                }
            }
        }
    }

    #[inline(always)]
    fn tile<S: Simd, const HEIGHT: usize, const WIDTH: usize, const IN_GROUPS: bool>(
        self,
        simd: S,
        out: &mut Out<'_>,
        left: Left<'_>,
        panel: &[f32],
        [first, part]: [usize; 2],
        next: &mut [Ahead<'_>],
    ) {
        let lanes = S::F32_LANES;
        let right = tile::Right { numbers: &panel[part..], row: PANEL };
        for row in 0..HEIGHT {
            let at = row * out.stride + first + part;
            (at..at + WIDTH * lanes).step_by(LINE).for_each(|at| prefetch(out.numbers, at));
        }
        let sums = if IN_GROUPS {
            joined_tile::<S, HEIGHT, WIDTH>(simd, self.depth, left, right, next)
        } else {
            tile::<S, HEIGHT, WIDTH>(simd, self.depth.len, left, right, next)
        };
        let whole = out.rows == HEIGHT && first + part + WIDTH * lanes <= self.width;
        for (row, sums) in sums.into_iter().enumerate() {
            for (index, sum) in sums.into_iter().enumerate() {
                let column = first + part + index * lanes;
                if whole || (row < out.rows && column < self.width) {
                    let width = if whole { lanes } else { lanes.min(self.width - column) };
                    let out = &mut out.numbers[row * out.stride + column..][..width];
                    self.write(simd, out, column, sum, whole);
                }
            }
        }
    }

    /// Writes the sums of one register: all its columns, or fewer at the right edge.
    #[inline(always)]
    fn write<S: Simd>(self, simd: S, out: &mut [f32], column: usize, sum: S::f32s, whole: bool) {
        let read = |from: &[f32]| {
            if whole { S::as_simd_f32s(from).0[0] } else { simd.partial_load_f32s(from) }
        };
        let sum = match self.start {
            Start::Zero => sum,
            Start::Row(start) => simd.add_f32s(read(&start[column..column + out.len()]), sum),
            Start::Old => simd.add_f32s(read(out), sum),
        };
        if whole {
            S::as_mut_simd_f32s(out).0[0] = sum;
        } else {
            simd.partial_store_f32s(out, sum);
        }
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
#[allow(clippy::single_range_in_vec_init, reason = "a group may have one range")]
mod tests {
    use std::ops::Range;
    use std::sync::Arc;

    use pulp::x86::{V3, V4};
    use pulp::{Scalar, Simd};

    use super::*;
    use crate::cpu::depth::DepthGroups;
    use crate::rng;

    /// `start + a b` with one level of SIMD.
    fn product<S: Simd>(simd: S, a: Matrix<'_>, b: Matrix<'_>, many_rows: bool) -> Vec<f32> {
        let mut out = vec![0.5; a.rows * b.columns];
        simd.vectorize(Multiply::<false> {
            out: &mut out,
            start: Start::Old,
            a,
            b: Right::Matrix(b),
            many_rows,
        });
        out
    }

    fn cut(numbers: &[f32], rows: usize, columns: usize) -> Matrix<'_> {
        Matrix::new(&numbers[..rows * columns], columns)
    }

    /// The depth `ranges` of `a b`, each range behind the other.
    fn part(ranges: &[Range<usize>], a: Matrix<'_>, b: Matrix<'_>) -> Vec<f32> {
        let places = || ranges.iter().cloned().flatten();
        let left: Vec<f32> = (0..a.rows).flat_map(|row| places().map(move |at| a.row(row)[at])).collect();
        let right: Vec<f32> =
            places().flat_map(|at| (0..b.columns).map(move |column| number(b, at, column))).collect();
        let depth = places().count();
        let mut out = vec![0.0; a.rows * b.columns];
        let (left, right) = (Matrix::new(&left, depth), Matrix::new(&right, b.columns));
        matmul(&mut out, Start::Zero, left, Right::Packed(&Packed::new(right, None)));
        out
    }

    fn number(of: Matrix<'_>, row: usize, column: usize) -> f32 {
        if of.turned { of.row(column)[row] } else { of.row(row)[column] }
    }

    /// The sum of these parts by the tree.
    fn by_tree(parts: &[Vec<f32>]) -> Vec<f32> {
        match parts {
            [one] => one.clone(),
            _ => {
                let (earlier, later) = parts.split_at(parts.len() / 2);
                let pairs = by_tree(earlier).into_iter().zip(by_tree(later));
                pairs.map(|(earlier, later)| earlier + later).collect()
            }
        }
    }

    #[test]
    fn a_product_in_groups_is_its_parts_added_by_the_tree() {
        let mut numbers = vec![0.0; 2 * 1300 * 70];
        rng::fill_normal(rng::key(1, "numbers"), 1.0, &mut numbers);
        let (a, b) = numbers.split_at(1300 * 70);
        let equal = |count: usize, each: usize| -> Vec<Vec<Range<usize>>> {
            (0..count).map(|group| vec![group * each..(group + 1) * each]).collect()
        };
        let fused = vec![vec![0..100, 200..211, 222..240], vec![100..200, 211..222, 240..260]];
        let large = vec![vec![0..500, 900..1000], vec![500..900, 1000..1300]];
        for groups in [equal(2, 9), equal(4, 37), equal(8, 150), equal(2, 601), fused, large] {
            let depth = groups.iter().flatten().map(|range| range.end).max().expect("a group");
            let a = cut(a, 45, depth);
            for b in [cut(b, depth, 70), cut(b, 70, depth).t()] {
                let parts: Vec<_> = groups.iter().map(|ranges| part(ranges, a, b)).collect();
                let sum = by_tree(&parts);
                let groups = Arc::new(DepthGroups::new(&groups).expect("several groups"));
                let packed = Packed::new(b, Some(&groups));
                for right in [Right::InGroups(b, &groups), Right::Packed(&packed)] {
                    let product = |start| {
                        let mut out = vec![0.5; a.rows * b.columns];
                        matmul(&mut out, start, a, right);
                        out
                    };
                    assert_eq!(product(Start::Zero), sum, "{groups:?}");
                    let bias = &numbers[..70];
                    let rows = sum.chunks_exact(70);
                    let expected = rows.flat_map(|row| row.iter().zip(bias).map(|(sum, bias)| bias + sum));
                    assert_eq!(product(Start::Row(bias)), expected.collect::<Vec<_>>(), "{groups:?}");
                }
                for many_rows in [false, true] {
                    let right = Right::InGroups(b, &groups);
                    let start = Start::Zero;
                    let mut out = vec![0.5; a.rows * b.columns];
                    Simd::vectorize(
                        Scalar,
                        Multiply::<true> { out: &mut out, start, a, b: right, many_rows },
                    );
                    assert_eq!(out, sum);
                    if let Some(simd) = V3::try_new() {
                        Simd::vectorize(
                            simd,
                            Multiply::<true> { out: &mut out, start, a, b: right, many_rows },
                        );
                        assert_eq!(out, sum);
                    }
                }
            }
        }
    }

    #[test]
    fn every_level_of_simd_and_every_height_of_tiles_gives_the_same_bits() {
        let mut numbers = vec![0.0; 2 * 601 * 300];
        rng::fill_normal(rng::key(1, "numbers"), 1.0, &mut numbers);
        let (a, b) = numbers.split_at(601 * 300);
        for (rows, depth, columns) in [(45, 601, 300), (300, 601, 43), (52, 1024, 33), (1, 1, 1)] {
            for a in [cut(a, rows, depth), cut(a, depth, rows).t()] {
                for b in [cut(b, depth, columns), cut(b, columns, depth).t()] {
                    let plain = product(Scalar, a, b, false);
                    for many in [false, true] {
                        assert!(V3::try_new().is_none_or(|simd| product(simd, a, b, many) == plain));
                        assert!(V4::try_new().is_none_or(|simd| product(simd, a, b, many) == plain));
                    }
                }
            }
        }
    }
}
