//! Products of small matrices whose sizes are whole tiles: what attention multiplies, head by head. Nothing is packed.

use pulp::{Arch, Simd, WithSimd};

use super::tile::{ROWS, tile, width};

/// A matrix with contiguous rows that start `stride` apart.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    /// From the first number of the first row.
    pub(crate) numbers: &'a [f32],
    /// From a row to the next.
    pub(crate) stride: usize,
}

/// The output of a product: as [`View`].
pub(crate) struct ViewMut<'a> {
    /// From the first number of the first row.
    pub(crate) numbers: &'a mut [f32],
    /// From a row to the next.
    pub(crate) stride: usize,
}

/// The size of a product: `[rows, depth]` by `[depth, columns]`.
#[derive(Clone, Copy)]
pub(crate) struct Size {
    /// Rows of the output, a multiple of 8.
    pub(crate) rows: usize,
    /// What is summed over.
    pub(crate) depth: usize,
    /// Columns of the output, a multiple of 16.
    pub(crate) columns: usize,
}

/// `out = a b`.
pub(crate) fn product(out: ViewMut<'_>, size: Size, a: View<'_>, b: View<'_>) {
    Arch::new().dispatch(Product { out, size, a, b });
}

/// `out += a^T b`; `a` is `[depth, rows]`.
pub(crate) fn add_turned_product(out: ViewMut<'_>, size: Size, a: View<'_>, b: View<'_>) {
    Arch::new().dispatch(AddTurnedProduct(Product { out, size, a, b }));
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
        let Self { out, size, a, b } = self;
        for row in (0..size.rows).step_by(ROWS) {
            let lines: [&[f32]; ROWS] =
                std::array::from_fn(|index| &a.numbers[(row + index) * a.stride..][..size.depth]);
            let a = |at: usize| std::array::from_fn(|index| lines[index][at]);
            row_of_tiles::<S, false>(simd, &mut out.numbers[row * out.stride..], out.stride, size, a, b);
        }
    }
}

struct AddTurnedProduct<'a>(Product<'a>);

impl WithSimd for AddTurnedProduct<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Product { out, size, a, b } = self.0;
        for row in (0..size.rows).step_by(ROWS) {
            let a = |at: usize| a.numbers[at * a.stride + row..].as_chunks().0[0];
            row_of_tiles::<S, true>(simd, &mut out.numbers[row * out.stride..], out.stride, size, a, b);
        }
    }
}

/// The tiles beside each other.
#[inline(always)]
fn row_of_tiles<S: Simd, const ADD: bool>(
    simd: S,
    out: &mut [f32],
    stride: usize,
    size: Size,
    a: impl Fn(usize) -> [f32; ROWS] + Copy,
    b: View<'_>,
) {
    let mut column = 0;
    while column < size.columns {
        let out = &mut out[column..];
        if width::<S>() == 2 && column + 2 * S::F32_LANES <= size.columns {
            one_tile::<S, 2, ADD>(simd, out, stride, size.depth, a, b, column);
            column += 2 * S::F32_LANES;
        } else {
            one_tile::<S, 1, ADD>(simd, out, stride, size.depth, a, b, column);
            column += S::F32_LANES;
        }
    }
}

#[inline(always)]
fn one_tile<S: Simd, const WIDTH: usize, const ADD: bool>(
    simd: S,
    out: &mut [f32],
    stride: usize,
    depth: usize,
    a: impl Fn(usize) -> [f32; ROWS],
    b: View<'_>,
    column: usize,
) {
    let width = WIDTH * S::F32_LANES;
    let sums = tile::<S, WIDTH>(simd, depth, a, |at| &b.numbers[at * b.stride + column..][..width]);
    for (row, sums) in sums.into_iter().enumerate() {
        let out = S::as_mut_simd_f32s(&mut out[row * stride..][..width]).0;
        for (out, sum) in out.iter_mut().zip(sums) {
            *out = if ADD { simd.add_f32s(*out, sum) } else { sum };
        }
    }
}
