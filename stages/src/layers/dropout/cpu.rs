//! The mask of dropout. It is computed again wherever it is needed.

use multiversion::multiversion;

use crate::cpu::lanes::LANES;
use crate::cpu::parts::{By, EXP, cut};
use crate::cpu::real::Real;
use crate::rng;

/// How many random numbers are made at once: four words for each of [`LANES`] counters.
const DRAWN: usize = 4 * LANES;

/// Zeroes numbers with probability `rate` and divides the others by `1 - rate`. The random numbers depend
/// only on the key, the moment (step and micro-batch) and the position.
pub(crate) fn dropout<N: Real>(numbers: &mut [N], rate: f32, key: [u32; 2], moment: [u32; 3]) {
    cut(By(numbers, DRAWN), EXP * DRAWN, |first, numbers| {
        dropout_part(numbers, first, rate, key, moment);
    });
}

/// The part of [`dropout`] whose random numbers start at index `first`.
#[multiversion(targets = "simd")]
fn dropout_part<N: Real>(numbers: &mut [N], first: usize, rate: f32, key: [u32; 2], moment: [u32; 3]) {
    let scale = 1.0 / (1.0 - rate);
    for (index, numbers) in (first..).zip(numbers.chunks_mut(DRAWN)) {
        let words = draw(key, (index * LANES) as u32, moment);
        for (number, &word) in numbers.iter_mut().zip(words.as_flattened()) {
            let wide = number.wide();
            *number = N::narrow(if rng::unit(word) < rate { 0.0 } else { wide * scale });
        }
    }
}

/// The four words of [`LANES`] counters: all first words, then all second words, and so on.
#[inline(always)]
fn draw(key: [u32; 2], first: u32, moment: [u32; 3]) -> [[u32; LANES]; 4] {
    let mut words = [[0; LANES]; 4];
    for lane in 0..LANES {
        let drawn = rng::philox(key, [first + lane as u32, moment[0], moment[1], moment[2]]);
        for (word, drawn) in words.iter_mut().zip(drawn) {
            word[lane] = drawn;
        }
    }
    words
}
