//! The inner loop of every matrix product: one tile of the output in registers.

use pulp::Simd;

/// Rows of a tile where there are 32 registers, and a multiple of its rows where there are fewer.
pub(crate) const ROWS: usize = 8;

/// Rows of a tile where there are 16 registers: half of them hold sums.
pub(crate) const FEW_ROWS: usize = 4;

/// The depth after which a tile may ask for memory.
pub(crate) const STEP: usize = 16;

/// Whether a tile of eight rows, two registers wide, leaves registers for its operands.
#[inline(always)]
pub(crate) fn is_tall<S: Simd>() -> bool {
    S::REGISTER_COUNT >= 32
}

/// The sum of the products of a column of `a` (by depth and row) and a row of `b` (by depth, `WIDTH` registers long),
/// from the first of `depth` to the last. Every [`STEP`] of the depth `ahead` is told where it is.
#[inline(always)]
pub(crate) fn tile<'b, S: Simd, const HEIGHT: usize, const WIDTH: usize>(
    simd: S,
    depth: usize,
    a: impl Fn(usize, usize) -> f32,
    b: impl Fn(usize) -> &'b [f32],
    ahead: impl Fn(usize),
) -> [[S::f32s; WIDTH]; HEIGHT] {
    let mut sums = [[simd.splat_f32s(0.0); WIDTH]; HEIGHT];
    for start in (0..depth).step_by(STEP) {
        ahead(start);
        for at in start..depth.min(start + STEP) {
            let b = S::as_simd_f32s(b(at)).0;
            let b: [S::f32s; WIDTH] = std::array::from_fn(|index| b[index]);
            for (row, sums) in sums.iter_mut().enumerate() {
                let a = simd.splat_f32s(a(at, row));
                for (sum, b) in sums.iter_mut().zip(b) {
                    *sum = simd.mul_add_f32s(a, b, *sum);
                }
            }
        }
    }
    sums
}
