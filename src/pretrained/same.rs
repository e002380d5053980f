//! Whether two tensors have the same numbers, whatever their formats.

use std::io;

use super::numbers::width;
use super::opened::{Opened, Place};

/// How many numbers are compared at a time.
const BLOCK: usize = 1 << 20;

/// Compares `count` numbers from two places on. Both have a format that is read.
pub(super) fn same(one: (&Opened, Place), other: (&Opened, Place), count: usize) -> io::Result<bool> {
    let read = |(file, place): (&Opened, Place), first: usize| {
        let bytes = first * width(place.dtype).expect("a format that is read");
        let offset = place.offset + bytes as u64;
        let mut numbers = vec![0.0; BLOCK.min(count - first)];
        file.read(Place { offset, ..place }, &mut numbers)?;
        Ok::<_, io::Error>(numbers)
    };
    for first in (0..count).step_by(BLOCK) {
        let (one, other) = (read(one, first)?, read(other, first)?);
        if bytemuck::cast_slice::<f32, u8>(&one) != bytemuck::cast_slice::<f32, u8>(&other) {
            return Ok(false);
        }
    }
    Ok(true)
}
