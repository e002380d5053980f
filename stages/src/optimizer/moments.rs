//! Moments in fewer bits than `f32`.

use half::bf16;

use crate::cpu::lanes::LANES;
use crate::parameter::state_format::{BLOCK, BLOCK_BYTES};

/// The bits of a number that is rounded to `bf16` at random: up or down with the probabilities that keep its
/// mean. `noise` are random bits. What is not finite stays so.
#[inline(always)]
pub(super) fn rounded_at_random(x: f32, noise: u32) -> bf16 {
    let bits = x.to_bits();
    let more = if x.is_finite() { noise & 0xffff } else { 0 };
    bf16::from_bits((bits.wrapping_add(more) >> 16) as u16 | u16::from(x.is_nan()) << 6)
}

/// Random bits from numbers that are seldom equal; of a gradient, -0 counts as 0. This is the finalizer of
/// MurmurHash3 (Appleby, 2008).
#[inline(always)]
pub(super) fn noise(x: f32, grad: f32, seed: u32) -> u32 {
    let mut hash = x.to_bits().wrapping_mul(0x9e37_79b1) ^ (grad + 0.0).to_bits().rotate_left(15) ^ seed;
    hash = (hash ^ hash >> 16).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ hash >> 13).wrapping_mul(0xc2b2_ae35);
    hash ^ hash >> 16
}

/// The seed of a step, for one of the moments.
pub(super) fn seed(step: u64, moment: u32) -> u32 {
    noise(f32::from_bits(step as u32), f32::from_bits((step >> 32) as u32), moment)
}

/// Powers of ten: the ends of the code's decades, from the largest size down.
pub(super) const ENDS: [f32; 7] = [1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0];
/// What brings a number of a decade to 0.1 to 1.
pub(super) const FACTORS: [f32; 7] = [1e6, 1e5, 1e4, 1e3, 1e2, 1e1, 1.0];

/// Numbers from 0 to 1 in 7 bits, or in 8, by the dynamic code of the paper. There is a place for 0, and one
/// for 1. Each of seven decades has bins of equal width, twice as many as the decade below; the lowest has
/// one or two. A number becomes the middle of its bin.
#[derive(Clone, Copy)]
pub(super) struct Code {
    /// How many bins the lowest decade has.
    first: u32,
}

impl Code {
    /// With a sign, in a byte.
    pub(super) const SIGNED: Self = Self { first: 1 };
    /// Without one.
    pub(super) const UNSIGNED: Self = Self { first: 2 };

    /// The place of 1.
    #[inline(always)]
    const fn last(self) -> u32 {
        127 * self.first + 1
    }

    /// The place of a number from 0 to 1. Only 0 itself becomes 0, or, with a sign, what is below half the
    /// least level.
    #[inline(always)]
    fn place(self, x: f32) -> u32 {
        let (mut near, mut bins) = (x * FACTORS[0], self.first);
        for decade in 1..7 {
            if x >= ENDS[decade - 1] {
                (near, bins) = (x * FACTORS[decade], self.first << decade);
            }
        }
        let bin = (near - 0.1) * (bins as f32 / 0.9);
        let bin = (bin.max(0.0) as u32).min(bins - 1);
        let is_zero = x < if self.first == 1 { 2.75e-7 } else { f32::MIN_POSITIVE };
        let place = if is_zero { 0 } else { bins - self.first + 1 + bin };
        if x >= 0.998 { self.last() } else { place }
    }

    /// The number at a place.
    #[inline(always)]
    fn level(self, place: u32) -> f32 {
        if place == 0 {
            return 0.0;
        }
        if place == self.last() {
            return 1.0;
        }
        let decade = place.div_ceil(self.first).ilog2();
        let bins = self.first << decade;
        let bin = place - (bins - self.first + 1);
        ((bin as f32 + 0.5) * (0.9 / bins as f32) + 0.1) * ENDS[decade as usize]
    }
}

/// The levels of the bytes of blocks with signs: 0 to 127 are the places of positive numbers, 128 is 1, and
/// the others, less 128, are the places of negative numbers.
pub(super) fn signed_levels() -> [f32; 256] {
    std::array::from_fn(|byte| match byte as u32 {
        byte @ 0..129 => Code::SIGNED.level(byte),
        byte => -Code::SIGNED.level(byte - 128),
    })
}

/// The levels of the bytes of blocks without signs.
pub(super) fn unsigned_levels() -> [f32; 256] {
    std::array::from_fn(|byte| Code::UNSIGNED.level(byte as u32))
}

#[inline(always)]
fn signed_byte(x: f32) -> u8 {
    let place = Code::SIGNED.place(x.abs());
    let negative = if place == 0 { 0 } else { 128 + place.min(127) };
    (if x < 0.0 { negative } else { place }) as u8
}

#[inline(always)]
fn unsigned_byte(x: f32) -> u8 {
    Code::UNSIGNED.place(x) as u8
}

/// Numbers of a block.
pub(super) type Block = [f32; BLOCK];

/// Decodes a block by its kind's levels.
#[inline(always)]
pub(super) fn decode(bytes: &[u8; BLOCK_BYTES], levels: &[f32; 256], to: &mut Block) {
    let (scale, codes) = bytes.split_first_chunk().expect("a block");
    let scale = f32::from_le_bytes(*scale);
    for (to, code) in to.iter_mut().zip(codes) {
        *to = levels[usize::from(*code)] * scale;
    }
}

/// Encodes a block.
#[inline(always)]
pub(super) fn encode<const IS_SIGNED: bool>(from: &Block, to: &mut [u8; BLOCK_BYTES]) {
    let mut most = [0.0_f32; LANES];
    for numbers in from.as_chunks::<LANES>().0 {
        for (most, x) in most.iter_mut().zip(numbers) {
            *most = most.max(x.abs());
        }
    }
    encode_by(most.into_iter().fold(0.0, f32::max), to, |scale, codes| {
        for (code, x) in codes.iter_mut().zip(from) {
            let share = x / scale;
            *code = if IS_SIGNED { signed_byte(share) } else { unsigned_byte(share) };
        }
    });
}

/// Encodes a block by its largest size, and what gives its bytes for its scale. If that is 0, all of them
/// are 0.
#[inline(always)]
pub(super) fn encode_by(largest: f32, to: &mut [u8; BLOCK_BYTES], bytes: impl FnOnce(f32, &mut [u8])) {
    // A number that is not finite becomes a finite one: as a scale, it would take all others with it.
    let scale = largest.min(f32::MAX);
    let (to_scale, codes) = to.split_first_chunk_mut().expect("a block");
    *to_scale = scale.to_le_bytes();
    match scale == 0.0 {
        true => codes.fill(0),
        false => bytes(scale, codes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_level_has_its_own_byte() {
        for byte in 0..=255 {
            assert_eq!(unsigned_byte(unsigned_levels()[usize::from(byte)]), byte);
            assert_eq!(signed_byte(signed_levels()[usize::from(byte)]), byte);
        }
    }

    /// The code of the paper has the middles of these bins, 0 and 1.
    #[test]
    fn levels_are_those_of_the_paper() {
        let mut expected = vec![0.0, 1.0];
        for decade in 0..7 {
            let bins = 2 << decade;
            let edge = |bin: i32| 0.1 + 0.9 * f64::from(bin) / f64::from(bins);
            expected.extend((0..bins).map(|bin| (edge(bin) + edge(bin + 1)) / 2.0 * 10_f64.powi(decade - 6)));
        }
        expected.sort_by(f64::total_cmp);
        for (level, expected) in unsigned_levels().iter().zip(expected) {
            assert!((f64::from(*level) - expected).abs() <= expected * 1e-6, "{level} is not {expected}");
        }
    }

    #[test]
    fn a_number_becomes_the_middle_of_its_bin() {
        for step in 1..=20_000 {
            let x = step as f32 / 20_000.0;
            let decade = (x.log10().floor() as i32 + 7).clamp(0, 6);
            for (level, first) in [
                (unsigned_levels()[usize::from(unsigned_byte(x))], 2),
                (signed_levels()[usize::from(signed_byte(x))], 1),
                (-signed_levels()[usize::from(signed_byte(-x))], 1),
            ] {
                // Half a bin.
                let most = 0.451 * 10_f32.powi(decade - 6) / (first << decade) as f32;
                assert!((level - x).abs() <= most, "{x} became {level}");
            }
        }
    }

    #[test]
    fn a_number_that_is_not_finite_leaves_the_others_finite() {
        for number in [f32::INFINITY, f32::NAN] {
            let mut block = [1e30; BLOCK];
            block[5] = number;
            let mut bytes = [0; BLOCK_BYTES];
            encode::<false>(&block, &mut bytes);
            decode(&bytes, &unsigned_levels(), &mut block);
            assert!(block.iter().all(|number| number.is_finite()), "{block:?}");
        }
    }

    #[test]
    fn rounding_at_random_keeps_the_mean() {
        let x = 1.0 + 0.3 / 128.0;
        let sum: f64 =
            (0..100_000).map(|draw| f64::from(rounded_at_random(x, noise(x, draw as f32, 3)).to_f32())).sum();
        assert!((sum / 1e5 - f64::from(x)).abs() < 2e-5, "{}", sum / 1e5);
        assert!(rounded_at_random(f32::NAN, 5).is_nan());
        assert_eq!(rounded_at_random(f32::INFINITY, u32::MAX), bf16::INFINITY);
        assert_eq!(rounded_at_random(f32::MIN_POSITIVE, 0).to_f32(), f32::MIN_POSITIVE);
    }
}
