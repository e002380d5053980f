//! The inner loop of every matrix product: one tile of the output in registers.

use pulp::Simd;

/// Rows of a tile.
pub(crate) const ROWS: usize = 8;

/// Registers side by side in a row of a tile: two where there are 32 of them.
pub(crate) const fn width<S: Simd>() -> usize {
    if S::REGISTER_COUNT >= 32 { 2 } else { 1 }
}

/// The sum of the products of a column of `a` and a row of `b`, from the first of `depth` to the last. `b` gives rows
/// of exactly `WIDTH` registers.
#[inline(always)]
pub(crate) fn tile<'b, S: Simd, const WIDTH: usize>(
    simd: S,
    depth: usize,
    a: impl Fn(usize) -> [f32; ROWS],
    b: impl Fn(usize) -> &'b [f32],
) -> [[S::f32s; WIDTH]; ROWS] {
    let mut sums = [[simd.splat_f32s(0.0); WIDTH]; ROWS];
    for at in 0..depth {
        let a = a(at);
        let b = S::as_simd_f32s(b(at)).0;
        let b: [S::f32s; WIDTH] = std::array::from_fn(|index| b[index]);
        for row in 0..ROWS {
            let a = simd.splat_f32s(a[row]);
            for index in 0..WIDTH {
                sums[row][index] = simd.mul_add_f32s(a, b[index], sums[row][index]);
            }
        }
    }
    sums
}
