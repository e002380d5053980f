//! A permutation of `0..count` as a pure function of a key. No list is kept: each number is computed on its
//! own.

use pipewright_stages::rng::philox;

/// Rounds of the Feistel network. Four give a permutation that looks random (Luby and Rackoff, 1988). Six are
/// a margin.
const ROUNDS: u32 = 6;

/// The number at a place of the permutation of `0..count`, for this key and epoch.
///
/// A Feistel network permutes the numbers with an even number of bits. A number that is not below `count`
/// goes through the network again until one below comes out (cycle walking). So the result is a permutation
/// of `0..count`.
pub(super) fn permute(key: [u32; 2], epoch: u64, count: u64, place: u64) -> u64 {
    let bits = u64::BITS - count.saturating_sub(1).leading_zeros();
    let half = bits.div_ceil(2);
    let mut number = place;
    loop {
        number = feistel(key, epoch, half, number);
        if number < count {
            return number;
        }
    }
}

fn feistel(key: [u32; 2], epoch: u64, half: u32, number: u64) -> u64 {
    let mask = (1_u64 << half) - 1;
    let (mut left, mut right) = (number >> half, number & mask);
    for round in 0..ROUNDS {
        let mixed = philox(key, [right as u32, round, epoch as u32, (epoch >> 32) as u32])[0];
        (left, right) = (right, left ^ (u64::from(mixed) & mask));
    }
    (left << half) | right
}
