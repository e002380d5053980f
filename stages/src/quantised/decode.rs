//! Numbers of a row of blocks.

use std::ops::Range;

use multiversion::multiversion;

use super::codes::{Code, PIECE, with_code};
use super::kind::Quantisation;

/// Decodes these numbers of a row.
pub(super) fn decode(kind: Quantisation, row: &[u8], columns: Range<usize>, to: &mut [f32]) {
    with_code!(kind, C => decode_as::<C>(row, columns, to));
}

fn decode_as<C: Code>(row: &[u8], columns: Range<usize>, to: &mut [f32]) {
    let first = columns.start.next_multiple_of(PIECE).min(columns.end);
    let (before, rest) = to.split_at_mut(first - columns.start);
    let (whole, after) = rest.as_chunks_mut::<PIECE>();
    let last = first + PIECE * whole.len();
    part_of_piece::<C>(row, columns.start, before);
    pieces::<C>(row, first / PIECE, whole);
    part_of_piece::<C>(row, last, after);
}

/// Decodes numbers of one piece, from this column on.
fn part_of_piece<C: Code>(row: &[u8], column: usize, to: &mut [f32]) {
    if !to.is_empty() {
        let piece = piece::<C>(row, column / PIECE);
        to.copy_from_slice(&piece[column % PIECE..][..to.len()]);
    }
}

/// Decodes whole pieces, from this one on.
fn pieces<C: Code>(row: &[u8], first: usize, to: &mut [[f32; PIECE]]) {
    #[cfg(target_arch = "x86_64")]
    if let Some(simd) = pulp::x86::V4::try_new() {
        return simd.vectorize(super::wide::Pieces::<C>::new(simd, row, first, to));
    }
    narrow_pieces::<C>(row, first, to);
}

#[multiversion(targets = "simd")]
fn narrow_pieces<C: Code>(row: &[u8], first: usize, to: &mut [[f32; PIECE]]) {
    for (at, to) in (first..).zip(to) {
        *to = piece::<C>(row, at);
    }
}

/// The piece with this number of a row.
#[inline(always)]
pub(crate) fn piece<C: Code>(row: &[u8], at: usize) -> [f32; PIECE] {
    let (block, index) = (at * PIECE / C::NUMBERS, at % (C::NUMBERS / PIECE));
    C::piece(&row[block * C::BYTES..][..C::BYTES], index)
}
