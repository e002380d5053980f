//! Numbers of several formats, read from files as `f32`.

use std::fs::File;
use std::io;

use pipewright_stages::threads;
use safetensors::Dtype;

use crate::system::read_at;

/// How many numbers a thread reads at a time.
const BLOCK: usize = 1 << 18;

/// How many of 16 bits are read before they are converted.
const HALVES: usize = 1 << 15;

/// The bytes of a number. `None`: a format that is not read.
pub(super) fn width(dtype: Dtype) -> Option<usize> {
    match dtype {
        Dtype::F32 => Some(4),
        Dtype::BF16 | Dtype::F16 => Some(2),
        _ => None,
    }
}

/// Reads numbers from an offset on. The threads of the rank share them.
pub(super) fn read_numbers(file: &File, offset: u64, dtype: Dtype, numbers: &mut [f32]) -> io::Result<()> {
    let width = width(dtype).expect("such a tensor is refused");
    threads::share(numbers, BLOCK, |first, block| {
        read_block(file, offset + (first * width) as u64, dtype, block)
    })
}

fn read_block(file: &File, offset: u64, dtype: Dtype, numbers: &mut [f32]) -> io::Result<()> {
    let widen = match dtype {
        Dtype::BF16 => |bits: u16| f32::from_bits(u32::from(bits) << 16),
        Dtype::F16 => of_half,
        _ => return read_at(file, bytemuck::cast_slice_mut(numbers), offset),
    };
    let (mut halves, mut at) = (vec![0_u16; HALVES.min(numbers.len())], offset);
    for block in numbers.chunks_mut(HALVES) {
        let halves = &mut halves[..block.len()];
        read_at(file, bytemuck::cast_slice_mut(halves), at)?;
        for (number, half) in block.iter_mut().zip(halves) {
            *number = widen(u16::from_le(*half));
        }
        at += 2 * block.len() as u64;
    }
    Ok(())
}

/// A number of IEEE 754 binary16.
pub(super) fn of_half(bits: u16) -> f32 {
    let sign = u32::from(bits >> 15) << 31;
    let (exponent, fraction) = (u32::from(bits >> 10) & 31, u32::from(bits) & 0x3ff);
    match exponent {
        // Subnormal numbers are multiples of 2^-24.
        0 => f32::from_bits(sign | (fraction as f32 / 16_777_216.0).to_bits()),
        31 => f32::from_bits(sign | 0x7f80_0000 | fraction << 13),
        _ => f32::from_bits(sign | (exponent + 112) << 23 | fraction << 13),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_read_as_ieee_754_says() {
        for (bits, number) in [
            (0x0000, 0.0),
            (0x3c00, 1.0),
            (0xc000, -2.0),
            (0x7bff, 65504.0),
            (0x0001, 5.960_464_5e-8),
            (0x83ff, -6.097_555e-5),
            (0x0400, 6.103_515_6e-5),
            (0x7c00, f32::INFINITY),
        ] {
            assert_eq!(of_half(bits), number, "{bits:04x}");
        }
        assert!(of_half(0x7e00).is_nan());
    }
}
