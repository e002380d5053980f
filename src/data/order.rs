//! The order in which samples are taken: a permutation of `0..count` as a pure function of a key. No list is
//! kept: each number is computed on its own.

use pipewright_stages::rng::{self, philox};

use super::{Course, Samples};
use crate::id::MicroBatch;

/// Which sample is at a place.
#[derive(Clone, Copy, Debug)]
pub(super) enum SampleOrder {
    /// A new order each epoch, and which samples each step takes.
    Shuffled { key: [u32; 2], course: Course },
    /// As in the file, the same at every step.
    InOrder,
}

impl SampleOrder {
    /// A new order each epoch, of samples with this name. `rows`: samples in a micro-batch; `micro_batches`:
    /// how many of these a step takes.
    pub(super) fn shuffled(name: &str, seed: u64, rows: usize, micro_batches: u32) -> Self {
        Self::Shuffled {
            key: rng::key(seed, name),
            course: Course::new(u64::from(micro_batches) * rows as u64),
        }
    }

    /// The same, with another course.
    #[must_use]
    pub(super) fn on_course(self, course: Course) -> Self {
        match self {
            Self::Shuffled { key, .. } => Self::Shuffled { key, course },
            Self::InOrder => Self::InOrder,
        }
    }

    /// Which of `count` samples is at a row of a micro-batch, and its epoch. `None` after the last one.
    pub(super) fn sample(
        self,
        count: u64,
        step: u64,
        micro_batch: MicroBatch,
        (row, rows): (usize, usize),
    ) -> Option<(u64, u64)> {
        let place = u64::from(micro_batch.0) * rows as u64 + row as u64;
        match self {
            Self::Shuffled { key, course } => {
                let place = course.first(step) + place;
                let epoch = place / count;
                Some((permute(key, epoch, count, place % count), epoch))
            }
            Self::InOrder => (place < count).then_some((place, 0)),
        }
    }

    /// What a fingerprint says of `samples` in this order.
    pub(super) fn fingerprint(self, samples: &str) -> (String, Option<Samples>) {
        match self {
            Self::Shuffled { key, course } => {
                let order = format!("{samples}, shuffled with key {key:?}");
                (format!("{order}, {course}"), Some(Samples { order, course }))
            }
            Self::InOrder => (format!("{samples}, in order"), None),
        }
    }
}

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
