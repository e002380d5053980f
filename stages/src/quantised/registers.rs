//! A kind of blocks that are decoded into registers of AVX-512.

use std::arch::x86_64::{__m256i, __m512, __m512i, _CMP_UNORD_Q};

use bytemuck::cast;
use pulp::x86::V4;

/// A piece: its first half, and its second.
pub(crate) type Wide = [__m512; 2];

/// A kind of blocks that are decoded into registers.
pub(crate) trait WideCode {
    /// Decodes the piece with this number of a block.
    fn wide(simd: V4, block: &[u8], index: usize) -> Wide;

    /// The same, rounded to `bf16`.
    #[inline(always)]
    fn halves(simd: V4, block: &[u8], index: usize) -> __m512i {
        let [low, high] = Self::wide(simd, block, index);
        joined(simd, rounded(simd, low), rounded(simd, high))
    }
}

/// Sixteen numbers, rounded to `bf16`.
#[inline(always)]
pub(super) fn rounded(simd: V4, numbers: __m512) -> __m256i {
    let bits: __m512i = cast(numbers);
    let upper = simd.avx512f._mm512_srli_epi32::<16>(bits);
    let odd = simd.avx512f._mm512_and_si512(upper, simd.avx512f._mm512_set1_epi32(1));
    let half = simd.avx512f._mm512_add_epi32(odd, simd.avx512f._mm512_set1_epi32(0x7fff));
    let nearest = simd.avx512f._mm512_add_epi32(bits, half);
    let quiet = simd.avx512f._mm512_or_si512(bits, simd.avx512f._mm512_set1_epi32(0x0040_0000));
    let is_nan = simd.avx512f._mm512_cmp_ps_mask::<_CMP_UNORD_Q>(numbers, numbers);
    let bits = simd.avx512f._mm512_mask_blend_epi32(is_nan, nearest, quiet);
    simd.avx512f._mm512_cvtepi32_epi16(simd.avx512f._mm512_srli_epi32::<16>(bits))
}

#[inline(always)]
pub(super) fn joined(simd: V4, low: __m256i, high: __m256i) -> __m512i {
    simd.avx512f._mm512_inserti64x4::<1>(simd.avx512f._mm512_castsi256_si512(low), high)
}
