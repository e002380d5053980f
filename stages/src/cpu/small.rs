//! Products of small matrices whose sizes are whole tiles. Attention uses them for each head. Nothing is
//! packed.

use pulp::{Arch, Simd, WithSimd};

use super::tile::{FEW_ROWS, Left, ROWS, Right, is_tall, tile};

/// A matrix with contiguous rows that start `stride` apart.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    /// The numbers from the first row on.
    pub(crate) numbers: &'a [f32],
    /// The distance from one row to the next.
    pub(crate) stride: usize,
}

/// The output of a product; like [`View`].
pub(crate) struct ViewMut<'a> {
    /// The numbers from the first row on.
    pub(crate) numbers: &'a mut [f32],
    /// The distance from one row to the next.
    pub(crate) stride: usize,
}

/// The size of a product: `[rows, depth]` by `[depth, columns]`.
#[derive(Clone, Copy)]
pub(crate) struct Size {
    /// The rows of the output, a multiple of 8.
    pub(crate) rows: usize,
    /// The length of the sums.
    pub(crate) depth: usize,
    /// The columns of the output, a multiple of 16.
    pub(crate) columns: usize,
}

/// `out = a b`.
pub(crate) fn product(out: ViewMut<'_>, size: Size, a: View<'_>, b: View<'_>) {
    Arch::new().dispatch(Product { out, size, a, b });
}

/// `out = a^T b`; `a` is `[depth, rows]`.
pub(crate) fn turned_product(out: ViewMut<'_>, size: Size, a: View<'_>, b: View<'_>) {
    Arch::new().dispatch(TurnedProduct::<false>(Product { out, size, a, b }));
}

/// `out += a^T b`; `a` is `[depth, rows]`.
pub(crate) fn add_turned_product(out: ViewMut<'_>, size: Size, a: View<'_>, b: View<'_>) {
    Arch::new().dispatch(TurnedProduct::<true>(Product { out, size, a, b }));
}

struct Product<'a> {
    out: ViewMut<'a>,
    size: Size,
    a: View<'a>,
    b: View<'a>,
}

impl WithSimd for Product<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        if is_tall::<S>() { self.overwrite::<S, ROWS>(simd) } else { self.overwrite::<S, FEW_ROWS>(simd) }
    }
}

struct TurnedProduct<'a, const ADD: bool>(Product<'a>);

impl<const ADD: bool> WithSimd for TurnedProduct<'_, ADD> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        if is_tall::<S>() {
            self.0.turned::<S, ROWS, ADD>(simd)
        } else {
            self.0.turned::<S, FEW_ROWS, ADD>(simd)
        }
    }
}

impl Product<'_> {
    #[inline(always)]
    fn overwrite<S: Simd, const HEIGHT: usize>(self, simd: S) {
        let steps = [self.a.stride, 1];
        self.run::<S, HEIGHT, false>(simd, steps);
    }

    #[inline(always)]
    fn turned<S: Simd, const HEIGHT: usize, const ADD: bool>(self, simd: S) {
        let steps = [1, self.a.stride];
        self.run::<S, HEIGHT, ADD>(simd, steps);
    }

    /// Computes all tiles. `row` and `column` are the distances of the rows and columns of the left operand.
    #[inline(always)]
    fn run<S: Simd, const HEIGHT: usize, const ADD: bool>(mut self, simd: S, [row, column]: [usize; 2]) {
        for first in (0..self.size.rows).step_by(HEIGHT) {
            let left = Left { numbers: &self.a.numbers[first * row..], row, column, is_copy: true };
            self.row_of_tiles::<S, HEIGHT, ADD>(simd, first, left);
        }
    }

    /// Computes the tiles of one row of tiles, from this row on.
    #[inline(always)]
    fn row_of_tiles<S: Simd, const HEIGHT: usize, const ADD: bool>(
        &mut self,
        simd: S,
        row: usize,
        left: Left<'_>,
    ) {
        let mut column = 0;
        while column + 2 * S::F32_LANES <= self.size.columns {
            self.tile::<S, HEIGHT, 2, ADD>(simd, row, column, left);
            column += 2 * S::F32_LANES;
        }
        if column < self.size.columns {
            self.tile::<S, HEIGHT, 1, ADD>(simd, row, column, left);
        }
    }

    #[inline(always)]
    fn tile<S: Simd, const HEIGHT: usize, const WIDTH: usize, const ADD: bool>(
        &mut self,
        simd: S,
        row: usize,
        column: usize,
        left: Left<'_>,
    ) {
        let right = Right { numbers: &self.b.numbers[column..], row: self.b.stride };
        let sums = tile::<S, HEIGHT, WIDTH>(simd, self.size.depth, left, right, &mut []);
        for (index, sums) in sums.into_iter().enumerate() {
            let out = &mut self.out.numbers[(row + index) * self.out.stride + column..];
            let out = &mut out[..WIDTH * S::F32_LANES];
            for (out, sum) in S::as_mut_simd_f32s(out).0.iter_mut().zip(sums) {
                *out = if ADD { simd.add_f32s(*out, sum) } else { sum };
            }
        }
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use pulp::Scalar;
    use pulp::x86::{V3, V4};

    use super::*;
    use crate::rng;

    const SIZE: Size = Size { rows: 24, depth: 37, columns: 48 };

    /// `a b` and `0.5 + a^T b`, with one level of SIMD.
    fn products<S: Simd>(simd: S, a: &[f32], b: &[f32]) -> [Vec<f32>; 2] {
        let mut outs = [0.5, 0.5].map(|number| vec![number; SIZE.rows * SIZE.columns]);
        let [plain, turned] = &mut outs;
        let view = |numbers, stride| View { numbers, stride };
        let product = |out, stride| Product {
            out: ViewMut { numbers: out, stride: SIZE.columns },
            size: SIZE,
            a: view(a, stride),
            b: view(b, SIZE.columns),
        };
        simd.vectorize(product(plain, SIZE.depth));
        simd.vectorize(TurnedProduct::<true>(product(turned, SIZE.rows)));
        outs
    }

    #[test]
    fn every_level_of_simd_gives_the_same_bits() {
        let mut numbers = vec![0.0; SIZE.depth * (SIZE.rows + SIZE.columns)];
        rng::fill_normal(rng::key(1, "numbers"), 1.0, &mut numbers);
        let (a, b) = numbers.split_at(SIZE.depth * SIZE.rows);
        let plain = products(Scalar, a, b);
        assert!(V3::try_new().is_none_or(|simd| products(simd, a, b) == plain));
        assert!(V4::try_new().is_none_or(|simd| products(simd, a, b) == plain));
    }
}
