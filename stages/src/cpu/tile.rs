//! The inner loop of every matrix product: one tile of the output in registers.

use pulp::Simd;

/// The rows of a tile on machines with 32 registers. It is a multiple of [`FEW_ROWS`].
pub(crate) const ROWS: usize = 8;

/// The rows of a tile on machines with 16 registers. Half of the registers hold sums.
pub(crate) const FEW_ROWS: usize = 4;

/// How often a tile can prefetch memory: once per this much depth.
pub(crate) const STEP: usize = 16;

/// Whether there are enough registers for a tile of eight rows that is two registers wide.
#[inline(always)]
pub(crate) fn is_tall<S: Simd>() -> bool {
    S::REGISTER_COUNT >= 32
}

/// One tile of a product. It sums, over `depth` from first to last, a column of `a` (by depth and row) times
/// a row of `b` (by depth, `WIDTH` registers long). After each [`STEP`] of the depth it calls `ahead` with
/// the current depth.
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
