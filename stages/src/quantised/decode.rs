//! Numbers of a row of blocks.

use std::ops::Range;

use multiversion::multiversion;

use super::codes::{Code, PIECE, Pairs, with_code};
use super::kind::Quantisation;

/// Decodes these numbers of a row.
pub(super) fn decode(kind: Quantisation, row: &[u8], columns: Range<usize>, to: &mut [f32]) {
    with_code!(kind, C => decode_as::<C>(row, columns, to));
}

fn decode_as<C: Code>(row: &[u8], columns: Range<usize>, to: &mut [f32]) {
    let first = columns.start.next_multiple_of(PIECE).min(columns.end);
    let (before, rest) = to.split_at_mut(first - columns.start);
    let (whole, after) = rest.as_chunks_mut::<PIECE>();
    let last = first + PIECE * whole.len();
    part_of_piece::<C>(row, columns.start, before);
    pieces::<C>(row, first / PIECE, whole);
    part_of_piece::<C>(row, last, after);
}

/// Decodes numbers of one piece, from this column on.
fn part_of_piece<C: Code>(row: &[u8], column: usize, to: &mut [f32]) {
    if !to.is_empty() {
        let piece = piece::<C>(row, column / PIECE);
        to.copy_from_slice(&piece[column % PIECE..][..to.len()]);
    }
}

/// Decodes whole pieces, from this one on.
fn pieces<C: Code>(row: &[u8], first: usize, to: &mut [[f32; PIECE]]) {
    #[cfg(target_arch = "x86_64")]
    if let Some(simd) = pulp::x86::V4::try_new() {
        return simd.vectorize(super::wide::Pieces::<C, [f32; PIECE]>::new(simd, row, first, to));
    }
    narrow_pieces::<C>(row, first, to);
}

#[multiversion(targets = "simd")]
fn narrow_pieces<C: Code>(row: &[u8], first: usize, to: &mut [[f32; PIECE]]) {
    for (at, to) in (first..).zip(to) {
        *to = piece::<C>(row, at);
    }
}

/// Decodes whole pieces of a row, from this one on, into numbers of `bf16`: rounded, in pairs.
pub(super) fn decode_halves(kind: Quantisation, row: &[u8], first: usize, to: &mut [Pairs]) {
    with_code!(kind, C => halves::<C>(row, first, to));
}

fn halves<C: Code>(row: &[u8], first: usize, to: &mut [Pairs]) {
    #[cfg(target_arch = "x86_64")]
    if let Some(simd) = pulp::x86::V4::try_new() {
        return simd.vectorize(super::wide::Pieces::<C, Pairs>::new(simd, row, first, to));
    }
    narrow_halves::<C>(row, first, to);
}

/// As [`decode_halves`], of the piece with this number of each row.
pub(crate) fn decode_strip(kind: Quantisation, rows: &[u8], piece: usize, to: &mut [Pairs]) {
    with_code!(kind, C => strip::<C>(rows, piece, to));
}

fn strip<C: Code>(rows: &[u8], index: usize, to: &mut [Pairs]) {
    let row_bytes = rows.len() / to.len().max(1);
    #[cfg(target_arch = "x86_64")]
    if let Some(simd) = pulp::x86::V4::try_new() {
        return simd.vectorize(super::wide::Strip::<C>::new(simd, (rows, row_bytes), index, to));
    }
    for (row, to) in rows.chunks_exact(row_bytes).zip(to) {
        narrow_halves::<C>(row, index, std::slice::from_mut(to));
    }
}

#[multiversion(targets = "simd")]
fn narrow_halves<C: Code>(row: &[u8], first: usize, to: &mut [Pairs]) {
    for (at, to) in (first..).zip(to) {
        let numbers = piece::<C>(row, at);
        for (to, &[low, high]) in to.iter_mut().zip(numbers.as_chunks::<2>().0) {
            let [low, high] = [low, high].map(|number| u32::from(rounded(number)));
            *to = low | high << 16;
        }
    }
}

/// The bits of the nearest number of `bf16`: see [`Real::narrow`](crate::cpu::real::Real::narrow).
#[inline(always)]
fn rounded(number: f32) -> u16 {
    let bits = number.to_bits();
    let nearest = bits.wrapping_add(0x7fff + (bits >> 16 & 1));
    let bits = if number.is_nan() { bits | 0x0040_0000 } else { nearest };
    (bits >> 16) as u16
}

/// The piece with this number of a row.
#[inline(always)]
pub(crate) fn piece<C: Code>(row: &[u8], at: usize) -> [f32; PIECE] {
    let (block, index) = (at * PIECE / C::NUMBERS, at % (C::NUMBERS / PIECE));
    C::piece(&row[block * C::BYTES..][..C::BYTES], index)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng;

    /// The bits of all numbers, also where they are none.
    fn bits(pieces: &[[f32; PIECE]]) -> Vec<u32> {
        pieces.as_flattened().iter().map(|number| number.to_bits()).collect()
    }

    /// On a CPU without AVX-512 both ways are one.
    #[test]
    fn registers_have_the_numbers_of_the_plain_code() {
        for kind in Quantisation::ALL {
            let mut noise = vec![0.0; kind.bytes(1024)];
            rng::fill_normal(rng::key(7, "blocks"), 300.0, &mut noise);
            let row: Vec<u8> = noise.iter().map(|number| number.abs() as u64 as u8).collect();
            let (mut wide, mut narrow) = (vec![[0.0; PIECE]; 32], vec![[0.0; PIECE]; 32]);
            let (mut wide_halves, mut narrow_halves) = (vec![[0; 16]; 32], vec![[0; 16]; 32]);
            with_code!(kind, C => {
                pieces::<C>(&row, 0, &mut wide);
                narrow_pieces::<C>(&row, 0, &mut narrow);
                halves::<C>(&row, 0, &mut wide_halves);
                super::narrow_halves::<C>(&row, 0, &mut narrow_halves);
            });
            let is_number = |(one, other): &(u32, u32)| {
                !f32::from_bits(*one).is_nan() || !f32::from_bits(*other).is_nan()
            };
            let pairs: Vec<_> = bits(&wide).into_iter().zip(bits(&narrow)).filter(is_number).collect();
            assert!(pairs.len() > 400, "{kind:?}: {}", pairs.len());
            assert!(pairs.iter().all(|(wide, narrow)| wide == narrow), "{kind:?}");
            let is_nan = |half: u32| half & 0x7f80 == 0x7f80 && half & 0x7f != 0;
            let halves = |pairs: &[Pairs]| -> Vec<u32> {
                pairs.as_flattened().iter().flat_map(|pair| [pair & 0xffff, pair >> 16]).collect()
            };
            for (wide, narrow) in halves(&wide_halves).into_iter().zip(halves(&narrow_halves)) {
                assert!(wide == narrow || (is_nan(wide) && is_nan(narrow)), "{kind:?}: {wide:x} {narrow:x}");
            }
            let mut strip = vec![[0; 16]; 2];
            let row_bytes = kind.bytes(512);
            decode_strip(kind, &row[..2 * row_bytes], 3, &mut strip);
            let expected = [wide_halves[3], wide_halves[16 + 3]];
            assert_eq!(halves(&strip), halves(&expected), "{kind:?}");
        }
    }
}
