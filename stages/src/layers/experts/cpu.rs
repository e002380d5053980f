//! Rows on their way to experts and back. A token has a row for each of its experts, and the rows of an
//! expert lie one after the other.

use multiversion::multiversion;

use crate::cpu::lanes::dot;
use crate::cpu::parts::{By, cut};
use crate::cpu::real::Real;

/// The numbers of a row that are added up at once, so that they stay in the first-level cache.
const BLOCK: usize = 256;

/// Writes rows of `width` numbers: of each row of `out`, the row of its token.
pub(crate) fn take<N: Real>(out: &mut [N], from: &[N], tokens: &[u32], width: usize) {
    cut((By(out, width), By(tokens, 1)), width, |_, (out, tokens)| {
        for (row, &token) in out.chunks_exact_mut(width).zip(tokens) {
            row.copy_from_slice(&from[token as usize * width..][..width]);
        }
    });
}

/// Adds to each token, `width` numbers of `sums`, its rows times their weights. These are 1 if none are
/// given. The token's rows are at its part of `places`, and are added in this order.
pub(crate) fn add_mixed<N: Real>(
    sums: &mut [N],
    rows: &[N],
    places: &[u32],
    weights: Option<&[f32]>,
    width: usize,
) {
    if sums.is_empty() {
        return;
    }
    let chosen = places.len() * width / sums.len();
    let parts = (By(sums, width), By(places, chosen));
    cut(parts, (1 + chosen) * width, |_, (sums, places)| {
        for (sums, places) in sums.chunks_exact_mut(width).zip(places.chunks_exact(chosen)) {
            add_mixed_part(sums, rows, places, weights);
        }
    });
}

#[multiversion(targets = "simd")]
fn add_mixed_part<N: Real>(sums: &mut [N], rows: &[N], places: &[u32], weights: Option<&[f32]>) {
    let width = sums.len();
    let mut room = [0.0; BLOCK];
    for (index, sums) in sums.chunks_mut(BLOCK).enumerate() {
        let room = &mut room[..sums.len()];
        for (wide, sum) in room.iter_mut().zip(&*sums) {
            *wide = sum.wide();
        }
        for &place in places {
            let weight = weights.map_or(1.0, |weights| weights[place as usize]);
            let row = &rows[place as usize * width + index * BLOCK..][..sums.len()];
            for (wide, number) in room.iter_mut().zip(row) {
                *wide = number.wide().mul_add(weight, *wide);
            }
        }
        for (sum, wide) in sums.iter_mut().zip(&*room) {
            *sum = N::narrow(*wide);
        }
    }
}

/// Writes the scalar product of `width` numbers of `grads` and of `values`, for each row: it is the slope
/// of the row's weight, and multiplies both by the weight.
pub(crate) fn weigh<N: Real>(
    grads: &mut [N],
    values: &mut [N],
    weights: &[f32],
    slopes: &mut [f32],
    width: usize,
) {
    let rows = (By(grads, width), By(values, width));
    let rows = (rows, (By(weights, 1), By(slopes, 1)));
    cut(rows, 2 * width, |_, ((grads, values), (weights, slopes))| {
        weigh_part(grads, values, weights, slopes, width);
    });
}

#[multiversion(targets = "simd")]
fn weigh_part<N: Real>(grads: &mut [N], values: &mut [N], weights: &[f32], slopes: &mut [f32], width: usize) {
    let rows =
        grads.chunks_exact_mut(width).zip(values.chunks_exact_mut(width)).zip(weights.iter().zip(slopes));
    for ((grads, values), (&weight, slope)) in rows {
        *slope = dot(grads, values);
        for number in grads.iter_mut().chain(values) {
            *number = N::narrow(weight * number.wide());
        }
    }
}
