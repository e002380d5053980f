//! Pieces of blocks in two registers of AVX-512. Levels of a few bits are looked up in a table of the values
//! that they have in this block, so most kinds take two instructions for sixteen numbers. Each number has the
//! bits of [`Code::piece`](super::codes::Code::piece).

use std::arch::x86_64::{__m128i, __m512, __m512i};
use std::marker::PhantomData;

use bytemuck::cast;
use pulp::NullaryFnOnce;
use pulp::x86::V4;

use super::codes::{
    Bf16, F16, LEVELS, Nf4, PIECE, Q2_K, Q3_K, Q4_0, Q4_1, Q4_K, Q5_0, Q5_1, Q5_K, Q6_K, Q8_0,
};
use super::codes::{Code, Pairs, bytes, of_six, of_third};
use super::registers::{Wide, WideCode, joined, rounded};

/// The numbers in a register.
const LANES: usize = 16;

/// The piece with this number of a row.
#[inline(always)]
pub(crate) fn piece<C: Code>(simd: V4, row: &[u8], at: usize) -> Wide {
    let (block, index) = (at * PIECE / C::NUMBERS, at % (C::NUMBERS / PIECE));
    C::wide(simd, &row[block * C::BYTES..][..C::BYTES], index)
}

/// Decodes whole pieces of a row, into numbers of `f32` or into pairs of `bf16`.
pub(super) struct Pieces<'a, C, T> {
    simd: V4,
    row: &'a [u8],
    first: usize,
    to: &'a mut [T],
    code: PhantomData<C>,
}

impl<'a, C, T> Pieces<'a, C, T> {
    pub(super) fn new(simd: V4, row: &'a [u8], first: usize, to: &'a mut [T]) -> Self {
        Self { simd, row, first, to, code: PhantomData }
    }
}

impl<C: Code> NullaryFnOnce for Pieces<'_, C, [f32; PIECE]> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        for (at, to) in (self.first..).zip(self.to) {
            *to = cast(piece::<C>(self.simd, self.row, at));
        }
    }
}

impl<C: Code> NullaryFnOnce for Pieces<'_, C, Pairs> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        for (at, to) in (self.first..).zip(self.to) {
            let (block, index) = (at * PIECE / C::NUMBERS, at % (C::NUMBERS / PIECE));
            *to = cast(C::halves(self.simd, &self.row[block * C::BYTES..][..C::BYTES], index));
        }
    }
}

/// Decodes a piece of each of some rows into pairs of `bf16`.
pub(super) struct Strip<'a, C> {
    simd: V4,
    rows: &'a [u8],
    row_bytes: usize,
    index: usize,
    to: &'a mut [Pairs],
    code: PhantomData<C>,
}

impl<'a, C> Strip<'a, C> {
    pub(super) fn new(
        simd: V4,
        (rows, row_bytes): (&'a [u8], usize),
        index: usize,
        to: &'a mut [Pairs],
    ) -> Self {
        Self { simd, rows, row_bytes, index, to, code: PhantomData }
    }
}

impl<C: Code> NullaryFnOnce for Strip<'_, C> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Self { simd, rows, row_bytes, index, to, .. } = self;
        let (block, index) = (index * PIECE / C::NUMBERS, index % (C::NUMBERS / PIECE));
        for (row, to) in rows.chunks_exact(row_bytes).zip(to) {
            *to = cast(C::halves(simd, &row[block * C::BYTES..][..C::BYTES], index));
        }
    }
}

/// The values of a table, rounded, for the lowest four bits of the low halves of sixteen bytes, and of their
/// high halves.
#[inline(always)]
fn look_nibbles_up(simd: V4, table: __m512, block: &[u8], at: usize) -> __m512i {
    let low = simd.avx2._mm256_cvtepu8_epi16(cast::<[u8; LANES], __m128i>(*bytes(block, at)));
    let high = simd.avx2._mm256_srli_epi16::<4>(low);
    look_halves_up(simd, table, joined(simd, low, high))
}

/// The values of a table, rounded, for the lowest four bits of 32 levels.
#[inline(always)]
fn look_halves_up(simd: V4, table: __m512, levels: __m512i) -> __m512i {
    let table = rounded(simd, table);
    // The fifth bit makes no difference.
    simd.avx512bw._mm512_permutexvar_epi16(levels, joined(simd, table, table))
}

/// Sixteen times the number of binary16 at a place.
#[inline(always)]
fn half(simd: V4, block: &[u8], at: usize) -> __m512 {
    let bits = i16::from_le_bytes(*bytes(block, at));
    simd.avx512f._mm512_cvtph_ps(simd.avx._mm256_set1_epi16(bits))
}

#[inline(always)]
fn every(simd: V4, number: f32) -> __m512 {
    simd.avx512f._mm512_set1_ps(number)
}

/// Sixteen bytes as whole numbers.
#[inline(always)]
fn sixteen(simd: V4, block: &[u8], at: usize) -> __m512i {
    simd.avx512f._mm512_cvtepu8_epi32(cast::<[u8; LANES], __m128i>(*bytes(block, at)))
}

/// `scale * (level - middle)`, for levels whose lowest bits are these.
#[inline(always)]
fn scaled<const LOWEST: usize>(simd: V4, scale: __m512, middle: i32) -> __m512 {
    let levels: [f32; LANES] = std::array::from_fn(|level| ((level & LOWEST) as i32 - middle) as f32);
    simd.avx512f._mm512_mul_ps(scale, cast(levels))
}

/// `scale * level + least`.
#[inline(always)]
fn from_least<const LOWEST: usize>(simd: V4, scale: __m512, first: i32, least: __m512) -> __m512 {
    simd.avx512f._mm512_add_ps(scaled::<LOWEST>(simd, scale, -first), least)
}

/// The values of a table for the lowest four bits of each level.
#[inline(always)]
fn look_up(simd: V4, table: __m512, levels: __m512i) -> __m512 {
    simd.avx512f._mm512_permutexvar_ps(levels, table)
}

/// The same of a second table, where a bit is set.
#[inline(always)]
fn look_up_either(simd: V4, tables: [__m512; 2], levels: __m512i, second: u16) -> __m512 {
    let first = look_up(simd, tables[0], levels);
    simd.avx512f._mm512_mask_permutexvar_ps(first, second, levels, tables[1])
}

/// The same for both halves of a piece.
#[inline(always)]
fn look_up_either_both(simd: V4, tables: [__m512; 2], levels: [__m512i; 2], second: [u16; 2]) -> Wide {
    let [low, high] = levels;
    [look_up_either(simd, tables, low, second[0]), look_up_either(simd, tables, high, second[1])]
}

/// [`look_up`] for both halves of a piece.
#[inline(always)]
fn look_up_both(simd: V4, table: __m512, [low, high]: [__m512i; 2]) -> Wide {
    [look_up(simd, table, low), look_up(simd, table, high)]
}

/// The low halves of sixteen bytes, and the high halves. Other bits are left as they are.
#[inline(always)]
fn nibbles(simd: V4, block: &[u8], at: usize) -> [__m512i; 2] {
    let low = sixteen(simd, block, at);
    [low, simd.avx512f._mm512_srli_epi32::<4>(low)]
}

/// 32 bytes, moved to the right.
#[inline(always)]
fn shifted(simd: V4, block: &[u8], at: usize, shift: usize) -> [__m512i; 2] {
    let shift = simd.avx512f._mm512_set1_epi32(shift as i32);
    let (low, high) = (sixteen(simd, block, at), sixteen(simd, block, at + LANES));
    [simd.avx512f._mm512_srlv_epi32(low, shift), simd.avx512f._mm512_srlv_epi32(high, shift)]
}

/// In which of 32 bytes a bit is set.
#[inline(always)]
fn bit_of(simd: V4, block: &[u8], at: usize, bit: usize) -> [u16; 2] {
    let bit = simd.avx512f._mm512_set1_epi32(1 << bit);
    let (low, high) = (sixteen(simd, block, at), sixteen(simd, block, at + LANES));
    [simd.avx512f._mm512_test_epi32_mask(low, bit), simd.avx512f._mm512_test_epi32_mask(high, bit)]
}

impl WideCode for F16 {
    #[inline(always)]
    fn wide(simd: V4, block: &[u8], _index: usize) -> Wide {
        let (low, high) = (bytes::<{ 2 * LANES }>(block, 0), bytes::<{ 2 * LANES }>(block, 2 * LANES));
        [simd.avx512f._mm512_cvtph_ps(cast(*low)), simd.avx512f._mm512_cvtph_ps(cast(*high))]
    }
}

impl WideCode for Bf16 {
    #[inline(always)]
    fn wide(simd: V4, block: &[u8], _index: usize) -> Wide {
        [upper_half(simd, block, 0), upper_half(simd, block, 2 * LANES)]
    }
}

/// Numbers from their upper halves.
#[inline(always)]
fn upper_half(simd: V4, block: &[u8], at: usize) -> __m512 {
    let halves = simd.avx512f._mm512_cvtepu16_epi32(cast(*bytes::<{ 2 * LANES }>(block, at)));
    cast(simd.avx512f._mm512_slli_epi32::<16>(halves))
}

impl WideCode for Q4_0 {
    #[inline(always)]
    fn wide(simd: V4, block: &[u8], _index: usize) -> Wide {
        let table = scaled::<15>(simd, half(simd, block, 0), 8);
        look_up_both(simd, table, nibbles(simd, block, 2))
    }

    #[inline(always)]
    fn halves(simd: V4, block: &[u8], _index: usize) -> __m512i {
        let table = scaled::<15>(simd, half(simd, block, 0), 8);
        look_nibbles_up(simd, table, block, 2)
    }
}

impl WideCode for Q4_1 {
    #[inline(always)]
    fn wide(simd: V4, block: &[u8], _index: usize) -> Wide {
        let table = from_least::<15>(simd, half(simd, block, 0), 0, half(simd, block, 2));
        look_up_both(simd, table, nibbles(simd, block, 4))
    }

    #[inline(always)]
    fn halves(simd: V4, block: &[u8], _index: usize) -> __m512i {
        let table = from_least::<15>(simd, half(simd, block, 0), 0, half(simd, block, 2));
        look_nibbles_up(simd, table, block, 4)
    }
}

/// Looks levels of five bits up.
#[inline(always)]
fn of_five(simd: V4, tables: [__m512; 2], levels: [__m512i; 2], fifth: &[u8; 4]) -> Wide {
    let fifth = [u16::from_le_bytes([fifth[0], fifth[1]]), u16::from_le_bytes([fifth[2], fifth[3]])];
    look_up_either_both(simd, tables, levels, fifth)
}

impl WideCode for Q5_0 {
    #[inline(always)]
    fn wide(simd: V4, block: &[u8], _index: usize) -> Wide {
        let scale = half(simd, block, 0);
        let tables = [scaled::<15>(simd, scale, 16), scaled::<15>(simd, scale, 0)];
        of_five(simd, tables, nibbles(simd, block, 6), bytes(block, 2))
    }
}

impl WideCode for Q5_1 {
    #[inline(always)]
    fn wide(simd: V4, block: &[u8], _index: usize) -> Wide {
        let (scale, least) = (half(simd, block, 0), half(simd, block, 2));
        let tables = [from_least::<15>(simd, scale, 0, least), from_least::<15>(simd, scale, 16, least)];
        of_five(simd, tables, nibbles(simd, block, 8), bytes(block, 4))
    }
}

impl WideCode for Q8_0 {
    #[inline(always)]
    fn wide(simd: V4, block: &[u8], _index: usize) -> Wide {
        let scale = half(simd, block, 0);
        [steps(simd, scale, block, 2), steps(simd, scale, block, 2 + LANES)]
    }
}

/// A scale times whole numbers of eight bits.
#[inline(always)]
fn steps(simd: V4, scale: __m512, block: &[u8], at: usize) -> __m512 {
    let levels = simd.avx512f._mm512_cvtepi8_epi32(cast(*bytes::<LANES>(block, at)));
    simd.avx512f._mm512_mul_ps(scale, simd.avx512f._mm512_cvtepi32_ps(levels))
}

impl WideCode for Q2_K {
    #[inline(always)]
    fn wide(simd: V4, block: &[u8], index: usize) -> Wide {
        let levels = shifted(simd, block, 16 + PIECE * (index / 4), 2 * (index % 4));
        let own = [half(simd, block, 80), half(simd, block, 82)];
        let tables = [of_two(simd, own, block[2 * index]), of_two(simd, own, block[2 * index + 1])];
        [look_up(simd, tables[0], levels[0]), look_up(simd, tables[1], levels[1])]
    }
}

/// The table of half a piece of [`Q2_K`].
#[inline(always)]
fn of_two(simd: V4, [scale, least]: [__m512; 2], own: u8) -> __m512 {
    let scale = simd.avx512f._mm512_mul_ps(scale, every(simd, f32::from(own & 15)));
    let least = simd.avx512f._mm512_mul_ps(least, every(simd, -f32::from(own >> 4)));
    from_least::<3>(simd, scale, 0, least)
}

impl WideCode for Q3_K {
    #[inline(always)]
    fn wide(simd: V4, block: &[u8], index: usize) -> Wide {
        let levels = shifted(simd, block, 32 + PIECE * (index / 4), 2 * (index % 4));
        let (third, scale) = (bit_of(simd, block, 0, index), half(simd, block, 108));
        let own = [of_third(block, 2 * index), of_third(block, 2 * index + 1)];
        let tables = [of_three(simd, scale, own[0]), of_three(simd, scale, own[1])];
        [
            look_up_either(simd, tables[0], levels[0], third[0]),
            look_up_either(simd, tables[1], levels[1], third[1]),
        ]
    }
}

/// The tables of half a piece of [`Q3_K`].
#[inline(always)]
fn of_three(simd: V4, scale: __m512, own: f32) -> [__m512; 2] {
    let scale = simd.avx512f._mm512_mul_ps(scale, every(simd, own));
    [scaled::<3>(simd, scale, 4), scaled::<3>(simd, scale, 0)]
}

/// The scale and the least value of a piece with 6 bits of each.
#[inline(always)]
fn six(simd: V4, block: &[u8], index: usize) -> [__m512; 2] {
    let [scale, least] = of_six(block, index);
    [
        simd.avx512f._mm512_mul_ps(half(simd, block, 0), every(simd, scale)),
        simd.avx512f._mm512_mul_ps(half(simd, block, 2), every(simd, -least)),
    ]
}

impl WideCode for Q4_K {
    #[inline(always)]
    fn wide(simd: V4, block: &[u8], index: usize) -> Wide {
        let [scale, least] = six(simd, block, index);
        let table = from_least::<15>(simd, scale, 0, least);
        let levels = shifted(simd, block, 16 + PIECE * (index / 2), 4 * (index % 2));
        look_up_both(simd, table, levels)
    }

    #[inline(always)]
    fn halves(simd: V4, block: &[u8], index: usize) -> __m512i {
        let [scale, least] = six(simd, block, index);
        let table = from_least::<15>(simd, scale, 0, least);
        let levels =
            simd.avx512bw._mm512_cvtepu8_epi16(cast(*bytes::<PIECE>(block, 16 + PIECE * (index / 2))));
        let levels = match index % 2 {
            0 => levels,
            _ => simd.avx512bw._mm512_srli_epi16::<4>(levels),
        };
        look_halves_up(simd, table, levels)
    }
}

impl WideCode for Q5_K {
    #[inline(always)]
    fn wide(simd: V4, block: &[u8], index: usize) -> Wide {
        let [scale, least] = six(simd, block, index);
        let tables = [from_least::<15>(simd, scale, 0, least), from_least::<15>(simd, scale, 16, least)];
        let levels = shifted(simd, block, 48 + PIECE * (index / 2), 4 * (index % 2));
        let fifth = bit_of(simd, block, 16, index);
        look_up_either_both(simd, tables, levels, fifth)
    }
}

impl WideCode for Q6_K {
    #[inline(always)]
    fn wide(simd: V4, block: &[u8], index: usize) -> Wide {
        let (half_block, place) = (index / 4, index % 4);
        let low = shifted(simd, block, 64 * half_block + PIECE * (place % 2), 4 * (place / 2));
        let high = shifted(simd, block, 128 + PIECE * half_block, 2 * place);
        let scale = half(simd, block, 208);
        let own = bytes::<2>(block, 192 + 2 * index);
        [
            of_six_bits(simd, scale, own[0] as i8, [low[0], high[0]]),
            of_six_bits(simd, scale, own[1] as i8, [low[1], high[1]]),
        ]
    }
}

/// Half a piece of [`Q6_K`], from its low and its high bits.
#[inline(always)]
fn of_six_bits(simd: V4, scale: __m512, own: i8, [low, high]: [__m512i; 2]) -> __m512 {
    let low = simd.avx512f._mm512_and_si512(low, simd.avx512f._mm512_set1_epi32(15));
    let high = simd.avx512f._mm512_and_si512(high, simd.avx512f._mm512_set1_epi32(3));
    let level = simd.avx512f._mm512_or_si512(low, simd.avx512f._mm512_slli_epi32::<4>(high));
    let level = simd.avx512f._mm512_sub_epi32(level, simd.avx512f._mm512_set1_epi32(32));
    let scale = simd.avx512f._mm512_mul_ps(scale, every(simd, f32::from(own)));
    simd.avx512f._mm512_mul_ps(scale, simd.avx512f._mm512_cvtepi32_ps(level))
}

impl WideCode for Nf4 {
    #[inline(always)]
    fn wide(simd: V4, block: &[u8], index: usize) -> Wide {
        let largest = every(simd, f32::from_le_bytes(*bytes(block, 0)));
        let table = simd.avx512f._mm512_mul_ps(cast(LEVELS), largest);
        look_up_both(simd, table, nibbles(simd, block, 4 + LANES * index))
    }

    #[inline(always)]
    fn halves(simd: V4, block: &[u8], index: usize) -> __m512i {
        let largest = every(simd, f32::from_le_bytes(*bytes(block, 0)));
        let table = simd.avx512f._mm512_mul_ps(cast(LEVELS), largest);
        look_nibbles_up(simd, table, block, 4 + LANES * index)
    }
}
