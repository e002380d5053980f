//! Squared differences, for a loss.

use multiversion::multiversion;

use crate::cpu::lanes::LANES;
use crate::cpu::real::Real;

/// Turns the output into twice its difference from the target, and returns the sum of the squared
/// differences. It is added up in each of [`LANES`] lanes first.
#[multiversion(targets = "simd")]
pub(crate) fn differences<N: Real>(output: &mut [N], target: &[f32]) -> f64 {
    let mut sums = [0.0; LANES];
    let (chunks, rest) = output.as_chunks_mut::<LANES>();
    let (targets, rest_of_targets) = target.as_chunks::<LANES>();
    for (chunk, target) in chunks.iter_mut().zip(targets) {
        for lane in 0..LANES {
            sums[lane] += difference(&mut chunk[lane], target[lane]);
        }
    }
    for ((sum, number), &target) in sums.iter_mut().zip(rest).zip(rest_of_targets) {
        *sum += difference(number, target);
    }
    sums.iter().sum()
}

/// Turns a number into twice its difference from the target, and returns the square of the difference.
#[inline(always)]
fn difference<N: Real>(number: &mut N, target: f32) -> f64 {
    let difference = number.wide() - target;
    *number = N::narrow(2.0 * difference);
    f64::from(difference) * f64::from(difference)
}
