//! Products by AVX-512-BF16: `vdpbf16ps` adds two products to each of sixteen sums.

use std::arch::x86_64::{
    __m512bh, _mm512_dpbf16_ps, _mm512_loadu_ps, _mm512_loadu_si512, _mm512_set1_epi32, _mm512_setzero_ps,
    _mm512_storeu_ps,
};
use std::mem::transmute;

use half::bf16;

use super::left::{Left, Order};
use super::panels::{TILE, Tile};

/// The rows whose sums are in registers at once.
const ROWS: usize = 8;

/// The sums in a register.
const LANES: usize = 16;

/// Whether this CPU has the instructions.
pub(crate) fn is_here() -> bool {
    is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bf16")
}

/// As [`super::Way::add`]. Only where [`is_here`].
pub(crate) fn add(sums: &mut Tile, left: Left<'_>, panel: &[bf16]) {
    let pairs = left.depth / 2;
    assert_eq!(panel.len(), TILE * left.depth, "a panel is as deep as the rows");
    for (index, sums) in sums.as_chunks_mut::<ROWS>().0.iter_mut().enumerate() {
        let row = index * ROWS;
        if row >= left.rows {
            return;
        }
        let start = match left.order {
            Order::Rows(stride) => row * stride,
            Order::Pairs => 2 * row,
        };
        let numbers = &left.numbers[start..];
        // SAFETY: this way is only chosen where the CPU has the instructions. A tile reads `panel` up to
        // `TILE * 2 * pairs` numbers, as asserted above, and `numbers` up to the length asserted here.
        unsafe {
            match left.order {
                Order::Rows(stride) => {
                    assert!(numbers.len() >= (ROWS - 1) * stride + 2 * pairs, "rows are whole");
                    tile::<false>(sums, numbers.as_ptr(), stride, panel.as_ptr(), pairs);
                }
                Order::Pairs => {
                    assert!(numbers.len() >= TILE * 2 * (pairs - 1) + 2 * ROWS, "rows are whole");
                    tile::<true>(sums, numbers.as_ptr(), 0, panel.as_ptr(), pairs);
                }
            }
        }
    }
}

/// Eight rows. `stride` is the distance of rows, if they do not lie in pairs.
///
/// # Safety
/// The CPU has the instructions. All pairs of the rows and of the panel can be read.
#[target_feature(enable = "avx512f,avx512bf16")]
unsafe fn tile<const IN_PAIRS: bool>(
    sums: &mut [[f32; TILE]; ROWS],
    left: *const bf16,
    stride: usize,
    panel: *const bf16,
    pairs: usize,
) {
    // SAFETY: sums are two registers wide, and all other reads are in the bounds that the caller promises.
    unsafe {
        let mut all = [[_mm512_setzero_ps(); 2]; ROWS];
        for (row, all) in sums.iter().zip(&mut all) {
            for (at, sum) in [0, LANES].into_iter().zip(all) {
                *sum = _mm512_loadu_ps(row.as_ptr().add(at));
            }
        }
        for pair in 0..pairs {
            let right: [__m512bh; 2] = [0, 2 * LANES]
                .map(|at| transmute(_mm512_loadu_si512(panel.add(pair * 2 * TILE + at).cast())));
            for (row, sums) in all.iter_mut().enumerate() {
                let at = match IN_PAIRS {
                    true => pair * 2 * TILE + 2 * row,
                    false => row * stride + 2 * pair,
                };
                let number = left.add(at).cast::<i32>().read_unaligned();
                let left: __m512bh = transmute(_mm512_set1_epi32(number));
                for (sum, right) in sums.iter_mut().zip(right) {
                    *sum = _mm512_dpbf16_ps(*sum, left, right);
                }
            }
        }
        for (row, all) in sums.iter_mut().zip(all) {
            for (at, sum) in [0, LANES].into_iter().zip(all) {
                _mm512_storeu_ps(row.as_mut_ptr().add(at), sum);
            }
        }
    }
}
