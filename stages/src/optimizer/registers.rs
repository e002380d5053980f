//! Blocks of moments in registers of AVX-512. Each number has the bits of the plain code in `moments.rs`.

use std::arch::x86_64::{__m128i, __m512, __m512i, _CMP_GE_OQ, _CMP_LT_OQ};

use bytemuck::cast;
use pulp::x86::V4;

use super::moments::{Block, ENDS, FACTORS, encode_by};
use crate::cpu::lanes::LANES;
use crate::parameter::state_format::BLOCK_BYTES;

/// A value for each range of places: the place 0, seven decades, and the place of 1. One more is for what is
/// not finite.
type ByRange<T> = [T; LANES];

/// What is not finite has this range.
const NOT_FINITE: u32 = 9;

/// The range of numbers below a threshold, by the exponent: from this one to the last one of the table.
/// From the threshold on they have the next range.
const FIRST_EXPONENT: u16 = 104;
const EXPONENTS: usize = 2 * LANES;

/// An array with a value for each of the seven decades, and others for 0, 1, and what is not finite.
macro_rules! by_range {
    ($decade:ident => $value:expr, $zero:expr, $one:expr, $not_finite:expr) => {{
        let (mut all, mut $decade) = ([$zero; LANES], 0);
        while $decade < 7 {
            all[$decade + 1] = $value;
            $decade += 1;
        }
        all[8] = $one;
        all[NOT_FINITE as usize] = $not_finite;
        all
    }};
}

/// The code of [`Code`](super::moments::Code) with this number of bins in the lowest decade.
struct Wide<const FIRST: u32>;

impl<const FIRST: u32> Wide<FIRST> {
    /// The place of 1.
    const ONE: u32 = 127 * FIRST + 1;
    /// Where each range but the first begins.
    const STARTS: [f32; 8] = {
        let mut starts = [if FIRST == 1 { 2.75e-7 } else { f32::MIN_POSITIVE }; 8];
        let mut decade = 1;
        while decade < 7 {
            starts[decade] = ENDS[decade - 1];
            decade += 1;
        }
        starts[7] = 0.998;
        starts
    };
    /// By the exponent: how many ranges begin below it, and where the next one begins.
    const BY_EXPONENT: ([u32; EXPONENTS], [f32; EXPONENTS]) = {
        let (mut below, mut starts) = ([NOT_FINITE; EXPONENTS], [f32::NAN; EXPONENTS]);
        let mut at = 0;
        while at < EXPONENTS - 1 {
            // The first one also stands for all that are smaller.
            let least = if at == 0 { 0.0 } else { f32::from_bits((FIRST_EXPONENT as u32 + at as u32) << 23) };
            let mut range = 0;
            while range < 8 && Self::STARTS[range] <= least {
                range += 1;
            }
            below[at] = range as u32;
            starts[at] = if range < 8 { Self::STARTS[range] } else { f32::NAN };
            at += 1;
        }
        (below, starts)
    };
    /// What brings a number of a decade to 0.1 to 1.
    const FACTORS: ByRange<f32> = by_range!(decade => FACTORS[decade], 0.0, 0.0, 1.0);
    /// How many bins there are to a unit.
    const DENSITY: ByRange<f32> = by_range!(decade => (FIRST << decade) as f32 / 0.9, 0.0, 0.0, 1.0);
    /// The first place.
    const PLACES: ByRange<u32> = by_range!(decade => (FIRST << decade) - FIRST + 1, 0, Self::ONE, 1);
    /// The last bin.
    const LAST: ByRange<u32> = by_range!(decade => (FIRST << decade) - 1, 0, 0, Self::ONE - 1);

    /// What brings it back. The place of 1 has 0.1 of 10.
    const ENDS: ByRange<f32> = by_range!(decade => ENDS[decade], 0.0, 10.0, 0.0);
    /// The width of a bin.
    const WIDTH: ByRange<f32> = by_range!(decade => 0.9 / (FIRST << decade) as f32, 0.0, 0.0, 0.0);
    /// By how much the place of a bin is more than its number and a half.
    const BEFORE: ByRange<f32> = by_range!(decade => ((FIRST << decade) - FIRST) as f32 + 0.5, 0.0, 0.0, 0.0);

    /// The places of numbers from 0 on. What is no number has place 1, and infinity the place of 1.
    #[inline(always)]
    fn places(simd: V4, x: __m512) -> __m512i {
        let f = simd.avx512f;
        let bits = f._mm512_srli_epi32::<23>(cast(x));
        let exponent = simd.avx512bw._mm512_subs_epu16(bits, f._mm512_set1_epi32(FIRST_EXPONENT.into()));
        let exponent = f._mm512_min_epu32(exponent, f._mm512_set1_epi32(EXPONENTS as i32 - 1));
        let (below, starts) = Self::BY_EXPONENT;
        let [low, high]: [__m512i; 2] = cast(below);
        let below = f._mm512_permutex2var_epi32(low, exponent, high);
        let [low, high]: [__m512; 2] = cast(starts);
        let start = f._mm512_permutex2var_ps(low, exponent, high);
        let is_next = f._mm512_cmp_ps_mask::<_CMP_GE_OQ>(x, start);
        let range = f._mm512_mask_add_epi32(below, is_next, below, f._mm512_set1_epi32(1));
        let near = f._mm512_mul_ps(x, f._mm512_permutexvar_ps(range, cast(Self::FACTORS)));
        let from_edge = f._mm512_sub_ps(near, f._mm512_set1_ps(0.1));
        let bin = f._mm512_mul_ps(from_edge, f._mm512_permutexvar_ps(range, cast(Self::DENSITY)));
        // What is no number becomes 0, and what is too large the greatest number without a sign.
        let bin = f._mm512_cvttps_epi32(f._mm512_max_ps(bin, f._mm512_set1_ps(0.0)));
        let bin = f._mm512_min_epu32(bin, f._mm512_permutexvar_epi32(range, cast(Self::LAST)));
        f._mm512_add_epi32(f._mm512_permutexvar_epi32(range, cast(Self::PLACES)), bin)
    }

    /// The numbers at these places.
    #[inline(always)]
    fn levels(simd: V4, places: __m512i) -> __m512 {
        let f = simd.avx512f;
        // Twice the first place of a decade is the first place of the next one, but for an offset.
        let ratio = match FIRST {
            1 => places,
            _ => f._mm512_srli_epi32::<1>(f._mm512_add_epi32(places, f._mm512_set1_epi32(1))),
        };
        // The first bit tells the decade. Of 0, that is the range of 0.
        let range = f._mm512_sub_epi32(f._mm512_set1_epi32(32), simd.avx512cd._mm512_lzcnt_epi32(ratio));
        let by = |numbers: ByRange<f32>| f._mm512_permutexvar_ps(range, cast(numbers));
        let middle = f._mm512_sub_ps(f._mm512_cvtepi32_ps(places), by(Self::BEFORE));
        let near = f._mm512_add_ps(f._mm512_mul_ps(middle, by(Self::WIDTH)), f._mm512_set1_ps(0.1));
        f._mm512_mul_ps(near, by(Self::ENDS))
    }
}

/// Decodes a block.
#[inline(always)]
pub(super) fn decode<const IS_SIGNED: bool>(simd: V4, bytes: &[u8; BLOCK_BYTES], to: &mut Block) {
    let f = simd.avx512f;
    let (scale, codes) = bytes.split_first_chunk().expect("a block");
    let scale = f._mm512_set1_ps(f32::from_le_bytes(*scale));
    for (to, codes) in to.as_chunks_mut::<LANES>().0.iter_mut().zip(codes.as_chunks::<LANES>().0) {
        let bytes = f._mm512_cvtepu8_epi32(cast::<_, __m128i>(*codes));
        let levels = match IS_SIGNED {
            false => Wide::<2>::levels(simd, bytes),
            true => {
                let half = f._mm512_set1_epi32(128);
                let is_negative = f._mm512_cmpgt_epi32_mask(bytes, half);
                let places = f._mm512_mask_sub_epi32(bytes, is_negative, bytes, half);
                let levels: __m512i = cast(Wide::<1>::levels(simd, places));
                cast(f._mm512_mask_xor_epi32(levels, is_negative, levels, f._mm512_set1_epi32(i32::MIN)))
            }
        };
        *to = cast(f._mm512_mul_ps(levels, scale));
    }
}

/// Encodes a block.
#[inline(always)]
pub(super) fn encode<const IS_SIGNED: bool>(simd: V4, from: &Block, to: &mut [u8; BLOCK_BYTES]) {
    let f = simd.avx512f;
    encode_by(largest(simd, from), to, |scale, codes| {
        let scale = f._mm512_set1_ps(scale);
        for (to, from) in codes.as_chunks_mut::<LANES>().0.iter_mut().zip(from.as_chunks::<LANES>().0) {
            let share = f._mm512_div_ps(cast(*from), scale);
            let bytes = if IS_SIGNED { signed(simd, share) } else { Wide::<2>::places(simd, share) };
            *to = cast(f._mm512_cvtepi32_epi8(bytes));
        }
    });
}

/// The largest size of a block's numbers.
#[inline(always)]
fn largest(simd: V4, block: &Block) -> f32 {
    let f = simd.avx512f;
    let mut most = f._mm512_set1_ps(0.0);
    for numbers in block.as_chunks::<LANES>().0 {
        // Of a number and what is none, the second is taken.
        most = f._mm512_max_ps(f._mm512_abs_ps(cast(*numbers)), most);
    }
    f._mm512_reduce_max_ps(most)
}

/// The bytes of numbers with signs.
#[inline(always)]
fn signed(simd: V4, x: __m512) -> __m512i {
    let f = simd.avx512f;
    let places = Wide::<1>::places(simd, f._mm512_abs_ps(x));
    let is_negative = f._mm512_cmp_ps_mask::<_CMP_LT_OQ>(x, f._mm512_set1_ps(0.0));
    let is_negative = f._mm512_mask_test_epi32_mask(is_negative, places, places);
    let least = f._mm512_min_epu32(places, f._mm512_set1_epi32(127));
    f._mm512_mask_add_epi32(places, is_negative, least, f._mm512_set1_epi32(128))
}

#[cfg(test)]
mod tests {
    use super::super::moments;
    use super::*;
    use crate::parameter::state_format::BLOCK;

    /// The bytes and the numbers of a block, in registers and without.
    fn check<const IS_SIGNED: bool>(simd: V4, block: &Block, levels: &[f32; 256]) {
        let (mut bytes, mut expected) = ([0; BLOCK_BYTES], [0; BLOCK_BYTES]);
        encode::<IS_SIGNED>(simd, block, &mut bytes);
        moments::encode::<IS_SIGNED>(block, &mut expected);
        assert_eq!(bytes, expected, "of {block:?}");
        let (mut numbers, mut expected) = ([0.0; BLOCK], [0.0; BLOCK]);
        decode::<IS_SIGNED>(simd, &bytes, &mut numbers);
        moments::decode(&bytes, levels, &mut expected);
        assert_eq!(numbers.map(f32::to_bits), expected.map(f32::to_bits), "of {bytes:?}");
    }

    /// Of numbers of every size with each sign, of what is not finite, and of every byte.
    #[test]
    fn registers_have_the_bits_of_the_plain_code() {
        let Some(simd) = V4::try_new() else { return };
        let (with_signs, without) = (moments::signed_levels(), moments::unsigned_levels());
        for start in (0..=u32::MAX).step_by(1 << 16) {
            // The largest number is 1, or it is what is there.
            for largest in [1.0, 0.0] {
                let mut block: Block = std::array::from_fn(|at| f32::from_bits(start + at as u32 * 509));
                block[77] = largest;
                if largest == 1.0 {
                    block = block.map(|x| if x.abs() > 1.0 { x % 1.0 } else { x });
                }
                check::<true>(simd, &block, &with_signs);
                check::<false>(simd, &block.map(f32::abs), &without);
            }
        }
        for half in [0, 128] {
            let mut bytes = [0; BLOCK_BYTES];
            bytes[..4].copy_from_slice(&1.7_f32.to_le_bytes());
            (bytes[4..].iter_mut().zip(half..=255)).for_each(|(byte, code)| *byte = code);
            let (mut numbers, mut expected) = ([0.0; BLOCK], [0.0; BLOCK]);
            decode::<true>(simd, &bytes, &mut numbers);
            moments::decode(&bytes, &with_signs, &mut expected);
            assert_eq!(numbers.map(f32::to_bits), expected.map(f32::to_bits));
            decode::<false>(simd, &bytes, &mut numbers);
            moments::decode(&bytes, &without, &mut expected);
            assert_eq!(numbers.map(f32::to_bits), expected.map(f32::to_bits));
        }
    }
}
