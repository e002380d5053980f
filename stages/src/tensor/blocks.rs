//! Numbers in 8 bits: blocks of consecutive numbers of a row, each with a scale.
//!
//! A number is a whole number from -127 to 127 times the scale of its block. A scale has 16 binary digits, so
//! these products are exact in `f32`. The largest number of a block is always 127 scales. So numbers that
//! were rounded once have the same scale and the same codes again: rounding twice is rounding once.

use multiversion::multiversion;

/// How many numbers share a scale. The last block of a row may have fewer.
pub(super) const BLOCK: usize = 128;

/// The largest code.
const MOST: f32 = 127.0;

/// Blocks whose numbers are all smaller count as zeros: their scale would have fewer digits. This is 2^-100.
const LEAST: f32 = 7.888_609e-31;

/// The scale of a block. It is NaN if a number is not finite, so that all numbers of the block become NaN.
#[inline(always)]
fn scale_of(block: &[f32]) -> f32 {
    let most = block.iter().fold(0, |most, number| (number.to_bits() & !SIGN).max(most));
    let most = f32::from_bits(most);
    if !most.is_finite() {
        return f32::NAN;
    }
    if most < LEAST {
        return 0.0;
    }
    f32::from_bits(((most / MOST).to_bits() + DROPPED) & !DROPPED)
}

const SIGN: u32 = 1 << 31;
/// The digits that a scale lacks.
const DROPPED: u32 = 0xff;

/// What a number is multiplied by, before it is rounded to its code.
#[inline(always)]
fn inverse(scale: f32) -> f32 {
    if scale == 0.0 { 0.0 } else { 1.0 / scale }
}

/// Rounds the numbers of rows of this width.
#[multiversion(targets = "simd")]
pub(super) fn round(rows: &mut [f32], width: usize) {
    for row in rows.chunks_mut(width) {
        for block in row.chunks_mut(BLOCK) {
            let scale = scale_of(block);
            let inverse = inverse(scale);
            for number in block {
                // A code has no -0.
                *number = (*number * inverse).round_ties_even() * scale + 0.0;
            }
        }
    }
}

/// The scales and codes of rows of this width.
#[multiversion(targets = "simd")]
pub(super) fn encode(rows: &[f32], width: usize, scales: &mut [u32], codes: &mut [u8]) {
    let blocks = rows.chunks(width).flat_map(|row| row.chunks(BLOCK));
    let mut rest = codes;
    for (block, scale_bits) in blocks.zip(scales) {
        let (codes, after) = rest.split_at_mut(block.len());
        rest = after;
        let scale = scale_of(block);
        let inverse = inverse(scale);
        *scale_bits = scale.to_bits();
        for (code, number) in codes.iter_mut().zip(block) {
            *code = (*number * inverse).round_ties_even() as i8 as u8;
        }
    }
}

/// The numbers of these scales and codes, in rows of this width.
#[multiversion(targets = "simd")]
pub(super) fn decode(rows: &mut [f32], width: usize, scales: &[u32], codes: &[u8]) {
    let blocks = rows.chunks_mut(width).flat_map(|row| row.chunks_mut(BLOCK));
    let mut rest = codes;
    for (block, scale) in blocks.zip(scales) {
        let (codes, after) = rest.split_at(block.len());
        rest = after;
        let scale = f32::from_bits(*scale);
        for (number, code) in block.iter_mut().zip(codes) {
            *number = f32::from(*code as i8) * scale;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng;

    /// Numbers of about this size.
    fn drawn(count: usize, size: f32) -> Vec<f32> {
        let mut numbers = vec![0.0; count];
        rng::fill_normal(rng::key(7, "blocks"), size, &mut numbers);
        numbers
    }

    fn bits(numbers: &[f32]) -> Vec<u32> {
        numbers.iter().map(|number| number.to_bits()).collect()
    }

    #[test]
    fn rounding_twice_is_rounding_once() {
        for size in [1e-36, 1e-30, 1e-20, 1e-3, 1.0, 3.7e5, 1e30] {
            for width in [1, 7, 128, 129, 300] {
                let mut once = drawn(11 * width, size);
                round(&mut once, width);
                let mut twice = once.clone();
                round(&mut twice, width);
                assert_eq!(bits(&once), bits(&twice), "{width} numbers of {size:e}");
            }
        }
    }

    #[test]
    fn what_is_decoded_is_what_was_rounded() {
        for width in [1, 100, 128, 257] {
            let numbers = drawn(5 * width, 0.3);
            let mut scales = vec![0; 5 * width.div_ceil(BLOCK)];
            let mut codes = vec![0; numbers.len()];
            encode(&numbers, width, &mut scales, &mut codes);
            let mut decoded = vec![0.0; numbers.len()];
            decode(&mut decoded, width, &scales, &codes);
            let mut rounded = numbers.clone();
            round(&mut rounded, width);
            assert_eq!(bits(&decoded), bits(&rounded));
            // A code is half a scale away at most, and a scale is the largest number over 127.
            let most = numbers.iter().fold(0.0_f32, |most, number| most.max(number.abs()));
            let near = |(a, b): (&f32, &f32)| (a - b).abs() <= 0.51 * most / MOST;
            assert!(numbers.iter().zip(&rounded).all(near));
        }
    }

    #[test]
    fn a_number_that_is_not_finite_is_not_lost() {
        for odd in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            // A scale of 1, which has no digits to lose.
            let mut numbers = vec![MOST; 2 * BLOCK];
            numbers[3] = odd;
            round(&mut numbers, 2 * BLOCK);
            assert!(numbers[..BLOCK].iter().all(|number| number.is_nan()));
            assert!(numbers[BLOCK..].iter().all(|&number| number == MOST));
        }
    }
}
