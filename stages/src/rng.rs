//! Counter-based random numbers. A random number depends only on its key and counter, never on the order of
//! calls.
//!
//! Philox4x32-10, Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).

use std::fmt::{self, Write};

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];

/// Four random words for a counter under a key.
#[inline(always)]
pub fn philox(key: [u32; 2], counter: [u32; 4]) -> [u32; 4] {
    let mut key = key;
    // Only the lower halves count. Words as wide as their products need not be converted in a loop over
    // counters.
    let mut words = counter.map(u64::from);
    for _ in 0..10 {
        let a = u64::from(MULTIPLIERS[0]) * u64::from(words[0] as u32);
        let b = u64::from(MULTIPLIERS[1]) * u64::from(words[2] as u32);
        words = [b >> 32 ^ words[1] ^ u64::from(key[0]), b, a >> 32 ^ words[3] ^ u64::from(key[1]), a];
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    words.map(|word| word as u32)
}

struct Fnv(u64);

impl fmt::Write for Fnv {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0 = text
            .bytes()
            .fold(self.0, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
        Ok(())
    }
}

/// The key of a named stream of random numbers: FNV-1a of the name, mixed with the seed.
pub fn key(seed: u64, name: impl fmt::Display) -> [u32; 2] {
    let mut hash = Fnv(0xcbf2_9ce4_8422_2325);
    write!(hash, "{name}").expect("hashing cannot fail");
    let words = philox([seed as u32, (seed >> 32) as u32], [hash.0 as u32, (hash.0 >> 32) as u32, 0, 0]);
    [words[0], words[1]]
}

/// A number in `[0, 1)` from the upper 24 bits of a word.
#[inline(always)]
pub fn unit(word: u32) -> f32 {
    (word >> 8) as f32 * (1.0 / 16_777_216.0)
}

/// Fills `out` with normal random numbers of mean 0 and the given standard deviation (Box-Muller).
pub fn fill_normal(key: [u32; 2], deviation: f32, out: &mut [f32]) {
    for (index, pair) in out.chunks_mut(2).enumerate() {
        let words = philox(key, [index as u32, (index as u64 >> 32) as u32, 0, 0]);
        let radius = (-2.0 * f64::from(1.0 - unit(words[0])).ln()).sqrt();
        let angle = std::f64::consts::TAU * f64::from(unit(words[1]));
        let draws = [radius * angle.cos(), radius * angle.sin()];
        for (number, draw) in pair.iter_mut().zip(draws) {
            *number = deviation * draw as f32;
        }
    }
}

/// Fills `out` with uniform random numbers on `[-bound, bound)`.
pub fn fill_uniform(key: [u32; 2], bound: f32, out: &mut [f32]) {
    for (index, four) in out.chunks_mut(4).enumerate() {
        let words = philox(key, [index as u32, (index as u64 >> 32) as u32, 0, 0]);
        for (number, word) in four.iter_mut().zip(words) {
            *number = bound * (2.0 * unit(word) - 1.0);
        }
    }
}
