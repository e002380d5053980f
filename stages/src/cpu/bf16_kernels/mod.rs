//! Products of `bf16` matrices, added up in `f32`.
//!
//! The output is computed in tiles of 32 rows and 32 columns. Each tile is added up over the whole depth,
//! from first to last or in groups, before it is added to anything or rounded. So the bits of a number depend
//! only on its own row and column, and on the [`Way`] in which this CPU multiplies.

pub(crate) mod left;
pub(crate) mod panels;
pub(crate) mod square;
pub(crate) mod way;
pub(crate) mod widen;

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code, reason = "the instructions are written in assembly")]
pub(crate) mod amx;
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code, reason = "the instructions take pointers")]
pub(crate) mod avx512;

use half::bf16;
use multiversion::multiversion;

use self::left::{Groups, Left};
use self::panels::{TILE, Tile, padded, padded_in, room};
use super::depth::Depth;
use super::matmul::Start;
use super::matrix::Matrix;
use super::parts::{By, PRODUCTS, cut, parts};
use super::prefetch::{LINE, prefetch};
use super::real::Real;
use crate::pool::Buffer;

pub(crate) use self::panels::{Panels, Right};
pub(crate) use self::way::Way;

/// How many numbers of the right operand are in a block: half a megabyte, so that it fits in the second-level
/// cache.
const BLOCK: usize = 256 * 1024;

/// How many multiply-adds of a product take as long as one in `f32`.
const FASTER: usize = 2;

/// The columns of a block of this depth in memory.
fn block(depth: usize) -> usize {
    (BLOCK / depth).max(TILE) / TILE * TILE
}

/// How many numbers a product needs while it runs: a packed block of the right operand, and the left operand,
/// which is transposed and has `left_rows` rows.
pub(crate) fn scratch(left_rows: usize, depth: usize) -> usize {
    let depth = padded(depth);
    room(block(depth) * depth) + left::numbers(left_rows, depth)
}

/// `out = start + a b`. The rows of `out` are contiguous.
pub(crate) fn product<N: Real>(out: &mut [N], start: Start<'_>, a: Matrix<'_, bf16>, b: Right<'_>) {
    product_by(Way::here(), out, start, a, b);
}

fn product_by<N: Real>(way: Way, out: &mut [N], start: Start<'_>, a: Matrix<'_, bf16>, b: Right<'_>) {
    assert_eq!(a.columns, b.depth().len(), "a has as many columns as b has rows");
    assert_eq!(out.len(), a.rows * b.columns(), "the product fills the output");
    let columns = b.columns();
    let weight = TILE * a.columns * columns / (FASTER * PRODUCTS);
    let once = match parts(a.rows / TILE * weight) {
        1 => None,
        // Packed once here. Otherwise each thread would pack all of it.
        _ => b.packed_once(),
    };
    let b = once.as_ref().map_or(b, Right::Panels);
    cut(By(out, TILE * columns), weight, |first, out| {
        let first = first * TILE;
        let a = a.part(first..first + out.len() / columns);
        Multiply { way, start, a, b }.run(out);
    });
}

#[derive(Clone, Copy)]
struct Multiply<'a> {
    way: Way,
    start: Start<'a>,
    a: Matrix<'a, bf16>,
    b: Right<'a>,
}

impl Multiply<'_> {
    /// Loops over blocks of columns, then over groups of rows, then over tiles.
    fn run<N: Real>(self, out: &mut [N]) {
        let Self { way, start, a, b } = self;
        let (order, columns) = (b.depth(), b.columns());
        let depth = padded_in(order);
        let mut groups = Groups::new(way.needs_rows(), a, order);
        let is_in_place = groups.is_in_place();
        let mut packed = b.room(block(depth));
        let mut sums = Buffer::<f32>::pooled(order.most_sums() * TILE * TILE);
        let sums: &mut [Tile] = bytemuck::cast_slice_mut(&mut sums);
        for first in (0..columns).step_by(block(depth)) {
            let width = block(depth).min(columns - first);
            let panels = b.panels(first..first + width, &mut packed);
            for row in (0..a.rows).step_by(TILE) {
                let rows = TILE.min(a.rows - row);
                let left = groups.reach(row, first == 0);
                for (index, panel) in panels.chunks_exact(TILE * depth).enumerate() {
                    let column = first + index * TILE;
                    let out = Out {
                        numbers: &mut out[row * columns + column..],
                        stride: columns,
                        rows,
                        width: TILE.min(columns - column),
                    };
                    out.prefetch();
                    match order {
                        Depth::Whole(_) => way.set(&mut sums[0], left, panel),
                        Depth::InGroups(_) => set_in_groups(way, sums, (left, is_in_place), panel, order),
                    }
                    write(out, start.from(column), &sums[0]);
                }
            }
        }
    }
}

/// Computes a tile that is added up in groups: into the first of `sums`, which hold the sums that the tree
/// has not joined yet.
fn set_in_groups(
    way: Way,
    sums: &mut [Tile],
    (left, is_in_place): (Left<'_>, bool),
    panel: &[bf16],
    order: Depth<'_>,
) {
    let (mut newest, mut at, mut is_new) = (0, 0, true);
    for segment in order.segments() {
        let depth = padded(segment.len());
        let from = if is_in_place { segment.start } else { at };
        let (left, panel) = (left.part(from..from + depth), &panel[TILE * at..TILE * (at + depth)]);
        match is_new {
            true => way.set(&mut sums[newest], left, panel),
            false => way.add(&mut sums[newest], left, panel),
        }
        at += depth;
        is_new = segment.joined.is_some();
        if let Some(joined) = segment.joined {
            for _ in 0..joined {
                newest -= 1;
                let (earlier, later) = sums.split_at_mut(newest + 1);
                add_tile(&mut earlier[newest], &later[0]);
            }
            newest += 1;
        }
    }
}

#[multiversion(targets = "simd")]
fn add_tile(sum: &mut Tile, more: &Tile) {
    for (sum, more) in sum.as_flattened_mut().iter_mut().zip(more.as_flattened()) {
        *sum += more;
    }
}

/// A tile of the output.
struct Out<'a, N> {
    numbers: &'a mut [N],
    stride: usize,
    rows: usize,
    width: usize,
}

impl<N> Out<'_, N> {
    #[inline(always)]
    fn prefetch(&self) {
        for row in 0..self.rows {
            for line in (0..self.width).step_by(LINE * size_of::<f32>() / size_of::<N>()) {
                prefetch(self.numbers, row * self.stride + line);
            }
        }
    }
}

/// Writes the sums of a tile.
#[multiversion(targets = "simd")]
fn write<N: Real>(out: Out<'_, N>, start: Start<'_>, sums: &Tile) {
    let rows = out.numbers.chunks_mut(out.stride).zip(sums);
    for (to, sums) in rows.take(out.rows) {
        let pairs = to[..out.width].iter_mut().zip(sums);
        match start {
            Start::Zero => pairs.for_each(|(to, &sum)| *to = N::narrow(sum)),
            Start::Row(start) => {
                for ((to, &sum), &start) in pairs.zip(start) {
                    *to = N::narrow(start + sum);
                }
            }
            Start::Old => pairs.for_each(|(to, &sum)| *to = N::narrow(to.wide() + sum)),
        }
    }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "a group may have one range")]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::cpu::depth::DepthGroups;
    use crate::pool::Buffer;
    use crate::rng;

    /// Rounded to `bf16`.
    fn numbers(name: &str, count: usize) -> Vec<bf16> {
        let mut numbers = vec![0.0; count];
        rng::fill_normal(rng::key(1, name), 1.0, &mut numbers);
        numbers.into_iter().map(bf16::narrow).collect()
    }

    /// An operand of this size, stored as it is or turned.
    fn operand(numbers: &[bf16], [rows, columns]: [usize; 2], turned: bool) -> Matrix<'_, bf16> {
        match turned {
            false => Matrix::new(&numbers[..rows * columns], columns),
            true => Matrix::new(&numbers[..rows * columns], rows).t(),
        }
    }

    fn at(matrix: Matrix<'_, bf16>, row: usize, column: usize) -> f64 {
        let [row, column] = if matrix.turned { [column, row] } else { [row, column] };
        f64::from(matrix.row(row)[column].wide())
    }

    fn assert_near(way: Way, [rows, depth, columns]: [usize; 3], turned: [bool; 2]) {
        let (a, b) = (numbers("a", rows * depth), numbers("b", depth * columns));
        let a = operand(&a, [rows, depth], turned[0]);
        let b = operand(&b, [depth, columns], turned[1]);
        let mut out = vec![0.5; rows * columns];
        product_by(way, &mut out, Start::Old, a, Right::Panels(&Panels::new(b, None)));
        for (index, &got) in out.iter().enumerate() {
            let (row, column) = (index / columns, index % columns);
            let pairs = (0..depth).map(|k| at(a, row, k) * at(b, k, column));
            let (sum, size) = pairs.fold((0.5, 0.5), |(sum, size), pair| (sum + pair, size + pair.abs()));
            let bound = 2e-7 * size * (depth as f64).sqrt();
            let off = (f64::from(got) - sum).abs();
            assert!(
                off <= bound,
                "{way}, {rows} x {depth} x {columns}, {turned:?}: {got} at {index}, not {sum}"
            );
        }
        let mut again = vec![0.5; rows * columns];
        if !b.turned {
            product_by(way, &mut again, Start::Old, a, Right::Matrix(b));
            assert_eq!(again, out, "{way}: packed for one product");
        }
    }

    /// Says which ways were tried, since none but the last is on every CPU.
    #[test]
    fn every_way_is_near_double_precision() {
        for &way in Way::ALL {
            if !way.is_here() {
                println!("bf16 by {way}: skipped, this CPU has no such instructions");
                continue;
            }
            for sizes in [[32, 32, 32], [45, 601, 70], [64, 1056, 33], [1, 1, 1], [7, 95, 290]] {
                for turned in [[false, false], [true, false], [false, true], [true, true]] {
                    assert_near(way, sizes, turned);
                }
            }
            println!("bf16 by {way}: tried");
        }
    }

    #[test]
    fn a_product_in_groups_is_its_parts_added_by_the_tree() {
        let (rows, columns) = (45, 70);
        let groups = [vec![0..64, 256..288], vec![64..101, 288..297], vec![101..250], vec![250..256]];
        let depth = 297;
        let (left, right) = (numbers("a", rows * depth), numbers("b", depth * columns));
        let a = operand(&left, [rows, depth], false);
        let groups_of = Arc::new(DepthGroups::new(&groups).expect("several groups"));
        for &way in Way::ALL.iter().filter(|way| way.is_here()) {
            for turned in [false, true] {
                let b = operand(&right, [depth, columns], turned);
                // A range of a group is added to the ranges before it.
                let parts: Vec<Vec<f32>> = groups
                    .iter()
                    .map(|ranges| {
                        let mut sums = Buffer::<f32>::pooled(TILE * TILE);
                        let mut out = vec![0.0; rows * columns];
                        for (row, column) in tiles(rows, columns) {
                            let sums: &mut [Tile] = bytemuck::cast_slice_mut(&mut sums);
                            sums[0].as_flattened_mut().fill(0.0);
                            for range in ranges {
                                let (mut left, mut panel) = (
                                    vec![bf16::ZERO; TILE * padded(range.len())],
                                    vec![bf16::ZERO; TILE * padded(range.len())],
                                );
                                for (index, to) in left.chunks_exact_mut(padded(range.len())).enumerate() {
                                    if row + index < rows {
                                        to[..range.len()].copy_from_slice(&a.row(row + index)[range.clone()]);
                                    }
                                }
                                panels::pack(
                                    &mut panel,
                                    b.part(range.clone()),
                                    column,
                                    Depth::Whole(range.len()),
                                );
                                let left = Left {
                                    numbers: &left,
                                    depth: padded(range.len()),
                                    rows: TILE,
                                    order: left::Order::Rows(padded(range.len())),
                                };
                                way.add(&mut sums[0], left, &panel);
                            }
                            for (index, sums) in sums[0].iter().enumerate() {
                                if row + index < rows {
                                    let width = TILE.min(columns - column);
                                    out[(row + index) * columns + column..][..width]
                                        .copy_from_slice(&sums[..width]);
                                }
                            }
                        }
                        out
                    })
                    .collect();
                let sum: Vec<f32> = (0..rows * columns)
                    .map(|at| (parts[0][at] + parts[1][at]) + (parts[2][at] + parts[3][at]))
                    .collect();
                let packed = Panels::new(b, Some(&groups_of));
                for right in [Right::InGroups(b, &groups_of), Right::Panels(&packed)] {
                    let mut out = vec![0.5_f32; rows * columns];
                    product_by(way, &mut out, Start::Zero, a, right);
                    assert_eq!(out, sum, "{way}");
                }
            }
        }
    }

    /// The first row and column of each tile.
    fn tiles(rows: usize, columns: usize) -> impl Iterator<Item = (usize, usize)> {
        (0..rows).step_by(TILE).flat_map(move |row| (0..columns).step_by(TILE).map(move |at| (row, at)))
    }

    #[test]
    fn what_pads_an_operand_does_not_count() {
        for &way in Way::ALL.iter().filter(|way| way.is_here()) {
            // Memory of the pool that held NaN before.
            for count in [Panels::count(3, 5), TILE * padded(3), TILE * block(padded(3))] {
                Buffer::pooled(count).fill(bf16::NAN);
            }
            let (a, b) = (numbers("a", 6), numbers("b", 15));
            let mut out = vec![f32::NAN; 10];
            for turned in [false, true] {
                let a = operand(&a, [2, 3], turned);
                product_by(way, &mut out, Start::Zero, a, Right::Matrix(Matrix::new(&b, 5)));
                assert!(out.iter().all(|number| number.is_finite()), "{way}: {out:?}");
            }
        }
    }
}
