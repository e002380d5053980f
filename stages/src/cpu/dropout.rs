//! The mask of dropout, drawn again wherever it is needed.

use multiversion::multiversion;

use super::lanes::LANES;
use super::parts::{By, EXP, cut};
use crate::rng;

/// Numbers that are drawn for at once: four words a counter.
const DRAWN: usize = 4 * LANES;

/// Zeroes numbers with probability `rate` and divides the others by `1 - rate`; the draws are a function of the key, the
/// moment and the position.
pub(crate) fn dropout(numbers: &mut [f32], rate: f32, key: [u32; 2], moment: [u32; 3]) {
    cut(By(numbers, DRAWN), EXP * DRAWN, |first, numbers| {
        dropout_part(numbers, first, rate, key, moment);
    });
}

/// Numbers from the draws of this index on.
#[multiversion(targets = "simd")]
fn dropout_part(numbers: &mut [f32], first: usize, rate: f32, key: [u32; 2], moment: [u32; 3]) {
    let scale = 1.0 / (1.0 - rate);
    for (index, numbers) in (first..).zip(numbers.chunks_mut(DRAWN)) {
        let words = draw(key, (index * LANES) as u32, moment);
        for (number, &word) in numbers.iter_mut().zip(words.as_flattened()) {
            *number = if rng::unit(word) < rate {
                0.0
            } else {
                *number * scale
            };
        }
    }
}

/// The four words of as many counters as there are lanes: all first words, all second words, ...
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
