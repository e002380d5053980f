//! What it costs to add gradients to a sum.

use std::hint::black_box;
use std::time::Instant;

/// How many numbers are added: more than caches hold next to the sum.
const NUMBERS: usize = 1 << 21;

/// How often. Other work on the machine makes some of the times longer, so the shortest counts.
const ROUNDS: usize = 8;

/// The seconds to add a byte of gradients, in `f32`, to a sum.
pub fn addition() -> f64 {
    let mut sum = vec![0.0_f32; NUMBERS];
    let added = vec![1.0_f32; NUMBERS];
    let mut shortest = f64::INFINITY;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for (sum, added) in black_box(&mut sum).iter_mut().zip(black_box(&added)) {
            *sum += added;
        }
        shortest = shortest.min(start.elapsed().as_secs_f64());
    }
    shortest / size_of_val(added.as_slice()) as f64
}
