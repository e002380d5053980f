//! Products of small matrices whose sizes are whole tiles: what attention multiplies, head by head.
//!
//! For them a library of large products spends its time on packing. Here a tile of the output stays in registers while
//! one loop runs over the depth, so that every sum has one order.

use pulp::{Arch, Simd, WithSimd};

/// The rows of a tile.
const ROWS: usize = 8;

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
            let out = ViewMut {
                numbers: &mut out.numbers[row * out.stride..],
                ..out
            };
            row_of_tiles(
                simd,
                out,
                false,
                size,
                |at| std::array::from_fn(|index| lines[index][at]),
                b,
            );
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
            let column = |at: usize| {
                let line = &a.numbers[at * a.stride + row..][..ROWS];
                std::array::from_fn(|index| line[index])
            };
            let out = ViewMut {
                numbers: &mut out.numbers[row * out.stride..],
                ..out
            };
            row_of_tiles(simd, out, true, size, column, b);
        }
    }
}

/// The tiles beside each other in one row of tiles: two registers wide where there are 32 of them.
#[inline(always)]
fn row_of_tiles<S: Simd>(
    simd: S,
    out: ViewMut<'_>,
    keep: bool,
    size: Size,
    a: impl Fn(usize) -> [f32; ROWS] + Copy,
    b: View<'_>,
) {
    let mut column = 0;
    while column < size.columns {
        let out = ViewMut {
            numbers: &mut out.numbers[column..],
            ..out
        };
        let b = View {
            numbers: &b.numbers[column..],
            ..b
        };
        if S::REGISTER_COUNT >= 32 && column + 2 * S::F32_LANES <= size.columns {
            tile::<S, 2>(simd, out, keep, size.depth, a, b);
            column += 2 * S::F32_LANES;
        } else {
            tile::<S, 1>(simd, out, keep, size.depth, a, b);
            column += S::F32_LANES;
        }
    }
}

/// One tile: the sum over the depth of a column of `a` times a row of `b`, written or added to the output.
#[inline(always)]
fn tile<S: Simd, const WIDTH: usize>(
    simd: S,
    out: ViewMut<'_>,
    keep: bool,
    depth: usize,
    a: impl Fn(usize) -> [f32; ROWS],
    b: View<'_>,
) {
    let width = WIDTH * S::F32_LANES;
    let mut sums = [[simd.splat_f32s(0.0); WIDTH]; ROWS];
    for at in 0..depth {
        let a = a(at);
        let b = S::as_simd_f32s(&b.numbers[at * b.stride..][..width]).0;
        let b: [S::f32s; WIDTH] = std::array::from_fn(|part| b[part]);
        for row in 0..ROWS {
            let a = simd.splat_f32s(a[row]);
            for part in 0..WIDTH {
                sums[row][part] = simd.mul_add_f32s(a, b[part], sums[row][part]);
            }
        }
    }
    for (row, sums) in sums.iter().enumerate() {
        let out = S::as_mut_simd_f32s(&mut out.numbers[row * out.stride..][..width]).0;
        for part in 0..WIDTH {
            out[part] = if keep {
                simd.add_f32s(out[part], sums[part])
            } else {
                sums[part]
            };
        }
    }
}
