//! Sums of gradients in 16 bits.
//!
//! Each sum of a gradient group, and each sum of two such sums, is rounded to `bf16`. So replicas can send
//! each other sums in 16 bits, and nothing depends on how many replicas there are.

use half::bf16;
use multiversion::multiversion;

use crate::cpu::elementwise::add_in_turn;
use crate::cpu::parts::{By, cut};
use crate::error::{Error, Result};
use crate::parameter::Parameter;
use crate::parameter::gradient_buffer::{GradientBuffer, SIZE};

/// The bytes of a number in 16 bits.
const SHORT: usize = size_of::<bf16>();
/// The bits of an `f32` that `bf16` lacks.
const LACKS: u32 = 0xffff;

/// Rounds a number to `bf16`, at random: the nearer it is to the upper neighbour, the more often it is
/// rounded up, and the mean stays. A hash of the number itself decides. So the same number always becomes the
/// same one.
#[inline(always)]
fn rounded(number: f32) -> f32 {
    let bits = number.to_bits();
    // Multiply-and-shift of Murmur3's last step, which mixes all bits.
    let mut hash = bits ^ bits >> 16;
    hash = hash.wrapping_mul(0x85eb_ca6b);
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(0xc2b2_ae35);
    hash ^= hash >> 16;
    let up = bits.wrapping_add(hash & LACKS) & !LACKS;
    // The bits of a NaN may not be rounded, and a sum that is rounded up to infinity is infinite.
    f32::from_bits(if number.is_finite() { up } else { bits })
}

#[multiversion(targets = "simd")]
fn round(numbers: &mut [f32]) {
    for number in numbers {
        *number = rounded(*number);
    }
}

/// Rounds sums, as bytes.
#[multiversion(targets = "simd")]
pub fn round_sums(sums: &mut [u8]) {
    for number in sums.as_chunks_mut().0 {
        *number = rounded(f32::from_ne_bytes(*number)).to_ne_bytes();
    }
}

/// Makes rounded sums, as bytes, half as long.
pub fn shorten_sums(sums: &mut Vec<u8>) {
    let count = sums.len() / SIZE;
    for place in 0..count {
        let number = f32::from_ne_bytes(*sums[place * SIZE..].first_chunk().expect("it has this number"));
        sums[place * SHORT..][..SHORT].copy_from_slice(&((number.to_bits() >> 16) as u16).to_ne_bytes());
    }
    sums.truncate(count * SHORT);
}

/// The sums that [`shorten_sums`] has made shorter.
pub fn lengthen_sums(sums: &mut Vec<u8>) {
    let count = sums.len() / SHORT;
    sums.resize(count * SIZE, 0);
    for place in (0..count).rev() {
        let bits = u16::from_ne_bytes(*sums[place * SHORT..].first_chunk().expect("it has this number"));
        let number = f32::from_bits(u32::from(bits) << 16);
        sums[place * SIZE..][..SIZE].copy_from_slice(&number.to_ne_bytes());
    }
}

impl Parameter {
    /// As [`Parameter::end_group`], where sums are rounded: adds the `newest` sums that wait, newest first,
    /// and rounds after each addition. They were not [announced](Parameter::expect_end).
    ///
    /// # Errors
    /// As there. Also on a GPU.
    pub fn end_rounded_group(&mut self, newest: usize) -> Result<()> {
        if self.is_frozen() {
            return Ok(());
        }
        if self.on_gpu().is_some() {
            return Err(Error::new("sums in bf16 are for ranks on the CPU: set them to f32"));
        }
        self.end_group()?;
        let left = self.sums.waiting.len() - newest;
        let added: Vec<GradientBuffer> = self.sums.waiting.drain(left..).collect();
        round_in_parts(&mut self.grad);
        for sum in added.iter().rev() {
            if let GradientBuffer::Host(more) = sum {
                add_in_turn(&mut self.grad, &[more]);
                round_in_parts(&mut self.grad);
            }
        }
        self.sums.spare.extend(added);
        Ok(())
    }
}

fn round_in_parts(numbers: &mut [f32]) {
    const UNIT: usize = 1024;
    cut(By(numbers, UNIT), UNIT, |_, numbers| round(numbers));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng;

    fn drawn(count: usize) -> Vec<f32> {
        let mut numbers = vec![0.0; count];
        rng::fill_normal(rng::key(5, "sums"), 1e-3, &mut numbers);
        numbers
    }

    #[test]
    fn a_number_becomes_one_of_its_two_neighbours_and_the_mean_stays() {
        let numbers = drawn(1 << 20);
        let (mut off, mut size) = (0.0, 0.0);
        for &number in &numbers {
            let down = f32::from_bits(number.to_bits() & !LACKS);
            let up = f32::from_bits((number.to_bits() & !LACKS) + LACKS + 1);
            let got = rounded(number);
            assert!(got == down || got == up, "{number} became {got}");
            assert_eq!(rounded(got).to_bits(), got.to_bits(), "rounding twice is rounding once");
            off += f64::from(got) - f64::from(number);
            size += f64::from(number).abs();
        }
        // One rounding is off by up to 2^-8 of the number; the sum of a million by far less.
        assert!((off / size).abs() < 1e-5, "the mean is off by {:e}", off / size);
    }

    #[test]
    fn what_is_not_finite_or_zero_stays() {
        for number in [f32::INFINITY, f32::NEG_INFINITY, 0.0, -0.0] {
            assert_eq!(rounded(number).to_bits(), number.to_bits());
        }
        assert!(rounded(f32::NAN).is_nan());
        assert!(rounded(f32::MAX).is_infinite() || rounded(f32::MAX) > 3e38);
    }

    #[test]
    fn sums_that_were_made_shorter_come_back() {
        for count in [0, 1, 2, 7, 1000] {
            let mut sums: Vec<u8> = drawn(count).into_iter().flat_map(f32::to_ne_bytes).collect();
            round_sums(&mut sums);
            let mut short = sums.clone();
            shorten_sums(&mut short);
            assert_eq!(short.len(), 2 * count);
            lengthen_sums(&mut short);
            assert_eq!(short, sums);
        }
    }
}
