//! Blocks of numbers.

use half::f16;
use multiversion::multiversion;

use super::codes::{LEVELS, PIECE};
use super::kind::Quantisation;
use crate::error::{Error, Result};

impl Quantisation {
    /// Whether [`Quantised::of`](super::Quantised::of) can make such blocks. Others are only read.
    pub fn can_be_made(self) -> bool {
        matches!(self, Self::Q8_0 | Self::Nf4)
    }

    /// Appends whole blocks of these numbers to blocks of this kind.
    ///
    /// # Errors
    /// As for [`Quantised::of`](super::Quantised::of). A number is named by its place in all blocks.
    pub fn encode(self, numbers: &[f32], to: &mut Vec<u8>) -> Result<()> {
        let encode = match self {
            Self::Q8_0 => q8_0,
            Self::Nf4 => nf4,
            other => return Err(Error::new(format!("blocks of {other:?} are only read, not made"))),
        };
        if let Some(at) = numbers.iter().position(|number| !number.is_finite()) {
            let (count, bytes) = self.block();
            let place = to.len() / bytes * count + at;
            let error = format!("number {place} is {}, which no block can stand for", numbers[at]);
            return Err(Error::new(error));
        }
        numbers.chunks_exact(self.block().0).for_each(|block| encode(block, to));
        Ok(())
    }
}

/// As `ggml` rounds: the largest number is 127 steps.
fn q8_0(numbers: &[f32], to: &mut Vec<u8>) {
    let scale = largest(numbers) / 127.0;
    let steps = if scale == 0.0 { 0.0 } else { 1.0 / scale };
    to.extend(f16::from_f32(scale).to_bits().to_le_bytes());
    to.extend(numbers.iter().map(|number| (number * steps).round() as i8 as u8));
}

/// As `bitsandbytes` rounds: to the nearest level.
fn nf4(numbers: &[f32], to: &mut Vec<u8>) {
    let largest = largest(numbers);
    let steps = if largest == 0.0 { 0.0 } else { 1.0 / largest };
    to.extend(largest.to_le_bytes());
    for piece in numbers.as_chunks::<PIECE>().0 {
        let levels = levels(piece, steps);
        let (low, high) = levels.split_at(PIECE / 2);
        to.extend(low.iter().zip(high).map(|(low, high)| low | high << 4));
    }
}

/// The levels that are nearest: how many borders between two levels each number is above.
#[multiversion(targets = "simd")]
fn levels(numbers: &[f32; PIECE], steps: f32) -> [u8; PIECE] {
    let mut levels = [0; PIECE];
    for pair in LEVELS.windows(2) {
        let border = (pair[0] + pair[1]) / 2.0;
        for (level, number) in levels.iter_mut().zip(numbers) {
            *level += u8::from(number * steps > border);
        }
    }
    levels
}

fn largest(numbers: &[f32]) -> f32 {
    numbers.iter().fold(0.0, |largest, number| number.abs().max(largest))
}
