//! Quantised numbers, as `ggml` defines them: blocks of 32 with a scale, and some with the smallest value.

use crate::pretrained::numbers::of_half;

/// How the numbers of a tensor are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Quantised {
    F32,
    F16,
    Bf16,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
}

use Quantised::{Bf16, F16, F32, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0};

impl Quantised {
    /// The numbers of `ggml`, and the names that messages show.
    pub(super) const ALL: [(u32, &'static str, Self); 8] = [
        (0, "F32", F32),
        (1, "F16", F16),
        (30, "BF16", Bf16),
        (2, "Q4_0", Q4_0),
        (3, "Q4_1", Q4_1),
        (6, "Q5_0", Q5_0),
        (7, "Q5_1", Q5_1),
        (8, "Q8_0", Q8_0),
    ];

    /// How many numbers a block has, and how many bytes.
    pub(super) fn block(self) -> (usize, usize) {
        match self {
            F32 => (1, 4),
            F16 | Bf16 => (1, 2),
            Q4_0 => (32, 18),
            Q4_1 => (32, 20),
            Q5_0 => (32, 22),
            Q5_1 => (32, 24),
            Q8_0 => (32, 34),
        }
    }

    /// The numbers of whole blocks.
    pub(super) fn numbers(self, bytes: &[u8], numbers: &mut [f32]) {
        let (count, size) = self.block();
        for (block, numbers) in bytes.chunks_exact(size).zip(numbers.chunks_exact_mut(count)) {
            self.one_block(block, numbers);
        }
    }

    fn one_block(self, block: &[u8], numbers: &mut [f32]) {
        let half = |at: usize| u16::from_le_bytes([block[at], block[at + 1]]);
        let bits = |at: usize| u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]]);
        let scale = of_half(half(0));
        match self {
            F32 => numbers[0] = f32::from_bits(bits(0)),
            F16 => numbers[0] = scale,
            Bf16 => numbers[0] = f32::from_bits(u32::from(half(0)) << 16),
            Q8_0 => {
                for (number, &level) in numbers.iter_mut().zip(&block[2..]) {
                    *number = scale * f32::from(level as i8);
                }
            }
            Q4_0 => fill(numbers, &block[2..], 0, |level| scale * (level as f32 - 8.0)),
            Q4_1 => {
                let least = of_half(half(2));
                fill(numbers, &block[4..], 0, |level| scale * level as f32 + least);
            }
            Q5_0 => fill(numbers, &block[6..], bits(2), |level| scale * (level as f32 - 16.0)),
            Q5_1 => {
                let least = of_half(half(2));
                fill(numbers, &block[8..], bits(4), |level| scale * level as f32 + least);
            }
        }
    }
}

/// The first 16 numbers are the low halves of 16 bytes, the others the high halves. `fifth` has a fifth bit
/// of each.
fn fill(numbers: &mut [f32], bytes: &[u8], fifth: u32, value: impl Fn(u32) -> f32) {
    for (index, &byte) in bytes.iter().enumerate() {
        let bit = |index: usize| (fifth >> index & 1) << 4;
        numbers[index] = value(u32::from(byte & 15) | bit(index));
        numbers[index + 16] = value(u32::from(byte >> 4) | bit(index + 16));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A scale of 0.5, a least value of -2, fifth bits of the numbers 1 and 16, and bytes 0x21, 0x43, ...
    fn block(has_least: bool, has_fifth: bool) -> Vec<u8> {
        let mut block = vec![0x00, 0x38];
        if has_least {
            block.extend([0x00, 0xc0]);
        }
        if has_fifth {
            block.extend(((1_u32 << 1) | (1 << 16)).to_le_bytes());
        }
        block.extend([0x21, 0x43].into_iter().chain([0; 14]));
        block
    }

    #[test]
    fn blocks_are_read_as_ggml_defines_them() {
        let read = |how: Quantised, block: &[u8]| {
            let mut numbers = [0.0; 32];
            assert_eq!(block.len(), how.block().1);
            how.numbers(block, &mut numbers);
            [numbers[0], numbers[1], numbers[16], numbers[17]]
        };
        assert_eq!(read(Q4_0, &block(false, false)), [-3.5, -2.5, -3.0, -2.0]);
        assert_eq!(read(Q4_1, &block(true, false)), [-1.5, -0.5, -1.0, 0.0]);
        assert_eq!(read(Q5_0, &block(false, true)), [-7.5, 1.5, 1.0, -6.0]);
        assert_eq!(read(Q5_1, &block(true, true)), [-1.5, 7.5, 7.0, 0.0]);
        let mut eight = vec![0x00, 0x38];
        eight.extend((0..32).map(|index| (index as i8 - 16) as u8));
        assert_eq!(read(Q8_0, &eight), [-8.0, -7.5, 0.0, 0.5]);
    }
}
