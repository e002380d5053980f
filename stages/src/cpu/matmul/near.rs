//! Products whose operands and output fit the first-level cache. Nothing is packed or prefetched.
//!
//! Every number has the bits that it would have as part of a large product: it is summed over the depth from
//! first to last.

use pulp::{Arch, Simd, WithSimd};

use super::Start;
use super::pack::PANEL;
use super::right::Right;
use crate::cpu::depth::BLOCK_DEPTH;
use crate::cpu::matrix::Matrix;
use crate::cpu::tile::{FEW_ROWS, ROWS, is_tall};

/// The most numbers of a near product: 32 KiB in all.
const NEAR: usize = 8192;

/// `out = start + a b`, if the product is near. Returns whether it was.
#[inline]
pub(crate) fn is_done(out: &mut [f32], start: Start<'_>, a: Matrix<'_>, b: Right<'_>) -> bool {
    let (depth, columns) = (b.depth().len(), b.columns());
    let numbers = (a.rows + columns) * depth + out.len();
    if depth > BLOCK_DEPTH || numbers > NEAR || !b.has_rows() || !b.depth().is_whole() {
        return false;
    }
    let product = Near { out, start, a, b };
    // In wider registers half of each would be empty.
    #[cfg(target_arch = "x86_64")]
    if columns <= 8
        && let Some(simd) = pulp::x86::V3::try_new()
    {
        Simd::vectorize(simd, product);
        return true;
    }
    Arch::new().dispatch(product);
    true
}

struct Near<'a> {
    out: &'a mut [f32],
    start: Start<'a>,
    a: Matrix<'a>,
    b: Right<'a>,
}

impl WithSimd for Near<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        if is_tall::<S>() || self.b.columns() <= S::F32_LANES {
            self.run::<S, ROWS>(simd)
        } else {
            self.run::<S, FEW_ROWS>(simd)
        }
    }
}

impl Near<'_> {
    #[inline(always)]
    fn run<S: Simd, const HEIGHT: usize>(mut self, simd: S) {
        let (a, depth) = (self.a, self.b.depth().len());
        for row in (0..a.rows).step_by(HEIGHT) {
            // Past the end it reads the last row again. Those results are not written.
            let last = HEIGHT.min(a.rows - row) - 1;
            if !a.turned {
                let line = |index: usize| &a.row(row + index.min(last))[..depth];
                let lines: [&[f32]; HEIGHT] = std::array::from_fn(line);
                self.row_of_tiles::<S, HEIGHT>(simd, row, |at, row| lines[row][at]);
            } else if last + 1 == HEIGHT {
                let line = |at: usize| &a.row(at)[row..row + HEIGHT];
                self.row_of_tiles::<S, HEIGHT>(simd, row, |at, row| line(at)[row]);
            } else {
                self.row_of_tiles::<S, HEIGHT>(simd, row, |at, index| a.row(at)[row + index.min(last)]);
            }
        }
    }

    /// Computes the tiles of one row of tiles, from this row on.
    #[inline(always)]
    fn row_of_tiles<S: Simd, const HEIGHT: usize>(
        &mut self,
        simd: S,
        row: usize,
        a: impl Fn(usize, usize) -> f32 + Copy,
    ) {
        let (b, columns, lanes) = (self.b, self.b.columns(), S::F32_LANES);
        for first in (0..columns).step_by(PANEL) {
            let panel = b.panel(first);
            for part in (0..PANEL.min(columns - first)).step_by(2 * lanes) {
                let (b, column) = (|at: usize| &panel.numbers[at * panel.stride + part..], first + part);
                if columns - column <= lanes {
                    self.tile::<S, HEIGHT, 1>(simd, [row, column], a, b);
                } else {
                    self.tile::<S, HEIGHT, 2>(simd, [row, column], a, b);
                }
            }
        }
    }

    #[inline(always)]
    fn tile<'b, S: Simd, const HEIGHT: usize, const WIDTH: usize>(
        &mut self,
        simd: S,
        [row, column]: [usize; 2],
        a: impl Fn(usize, usize) -> f32,
        b: impl Fn(usize) -> &'b [f32],
    ) {
        let (columns, lanes) = (self.b.columns(), S::F32_LANES);
        let sums = sums::<S, HEIGHT, WIDTH>(simd, self.b.depth().len(), a, b);
        let (rows, width) = (HEIGHT.min(self.a.rows - row), WIDTH * lanes);
        let out = &mut self.out[row * columns..];
        if rows == HEIGHT && column + width <= columns {
            // The loops have constant lengths, so the sums stay in registers.
            for row in 0..HEIGHT {
                let out = S::as_mut_simd_f32s(&mut out[row * columns + column..][..width]).0;
                for index in 0..WIDTH {
                    let sum = sums[row][index];
                    out[index] = self.start.add(simd, column + index * lanes, out[index], sum);
                }
            }
            return;
        }
        for (out, sums) in out.chunks_mut(columns).zip(sums).take(rows) {
            let registers = out[column..].chunks_mut(lanes).zip(sums).enumerate();
            for (index, (out, sum)) in registers {
                let sum = self.start.add(simd, column + index * lanes, read(simd, out), sum);
                simd.partial_store_f32s(out, sum);
            }
        }
    }
}

impl Start<'_> {
    /// The start of a register from this column on, and the sum. `old`: what the output holds there.
    #[inline(always)]
    fn add<S: Simd>(self, simd: S, column: usize, old: S::f32s, sum: S::f32s) -> S::f32s {
        match self {
            Self::Zero => sum,
            Self::Row(start) => simd.add_f32s(read(simd, &start[column..]), sum),
            Self::Old => simd.add_f32s(old, sum),
        }
    }
}

/// Sums, over the depth from first to last, a column of `a` (by depth and row) times a row of `b`, `WIDTH`
/// registers long.
#[inline(always)]
fn sums<'b, S: Simd, const HEIGHT: usize, const WIDTH: usize>(
    simd: S,
    depth: usize,
    a: impl Fn(usize, usize) -> f32,
    b: impl Fn(usize) -> &'b [f32],
) -> [[S::f32s; WIDTH]; HEIGHT] {
    let mut sums = [[simd.splat_f32s(0.0); WIDTH]; HEIGHT];
    for at in 0..depth {
        let b: [S::f32s; WIDTH] = match S::as_simd_f32s(b(at)).0.first_chunk() {
            Some(b) => *b,
            // The last row ends here.
            None => std::array::from_fn(|index| {
                let b = b(at);
                read(simd, &b[b.len().min(index * S::F32_LANES)..])
            }),
        };
        for (row, sums) in sums.iter_mut().enumerate() {
            let a = simd.splat_f32s(a(at, row));
            for (sum, b) in sums.iter_mut().zip(b) {
                *sum = simd.mul_add_f32s(a, b, *sum);
            }
        }
    }
    sums
}

/// The first numbers: as many as a register holds, or fewer.
#[inline(always)]
fn read<S: Simd>(simd: S, from: &[f32]) -> S::f32s {
    match S::as_simd_f32s(from).0 {
        [whole, ..] => *whole,
        [] => simd.partial_load_f32s(from),
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use pulp::Scalar;
    use pulp::x86::{V3, V4};

    use super::super::right::Packed;
    use super::*;
    use crate::rng;

    /// The product, each number by itself.
    fn plain(start: Start<'_>, a: Matrix<'_>, b: Matrix<'_>) -> Vec<f32> {
        let number = |of: Matrix<'_>, row: usize, column: usize| match of.turned {
            false => of.numbers[row * of.stride + column],
            true => of.numbers[column * of.stride + row],
        };
        let at = |index: usize| {
            let (row, column) = (index / b.columns, index % b.columns);
            let sum =
                (0..b.rows).fold(0.0, |sum: f32, at| number(a, row, at).mul_add(number(b, at, column), sum));
            match start {
                Start::Zero => sum,
                Start::Row(start) => start[column] + sum,
                Start::Old => 0.5 + sum,
            }
        };
        (0..a.rows * b.columns).map(at).collect()
    }

    fn near<S: Simd>(simd: S, start: Start<'_>, a: Matrix<'_>, b: Right<'_>) -> Vec<f32> {
        let mut out = vec![0.5; a.rows * b.columns()];
        let product = Near { out: &mut out, start, a, b };
        Simd::vectorize(simd, product);
        out
    }

    #[test]
    fn every_level_of_simd_gives_the_bits_of_a_sum_from_first_to_last() {
        let mut numbers = vec![0.0; 3 * NEAR];
        rng::fill_normal(rng::key(1, "numbers"), 1.0, &mut numbers);
        for [rows, depth, columns] in
            [[8, 8, 256], [8, 256, 8], [256, 8, 8], [13, 37, 43], [3, 5, 20], [1, 1, 1]]
        {
            let (a, rest) = numbers.split_at(rows * depth);
            let (b, rest) = rest.split_at(depth * columns);
            let (a, b) = ([Matrix::new(a, depth), Matrix::new(a, rows).t()], Matrix::new(b, columns));
            let packed = Packed::new(b, None);
            for start in [Start::Zero, Start::Row(&rest[..columns]), Start::Old] {
                for (a, right) in
                    [(a[0], Right::Matrix(b)), (a[1], Right::Matrix(b)), (a[1], Right::Packed(&packed))]
                {
                    let plain = plain(start, a, b);
                    assert_eq!(near(Scalar, start, a, right), plain);
                    assert!(V3::try_new().is_none_or(|simd| near(simd, start, a, right) == plain));
                    assert!(V4::try_new().is_none_or(|simd| near(simd, start, a, right) == plain));
                }
            }
        }
    }
}
