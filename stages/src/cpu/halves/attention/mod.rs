//! Causal self-attention in `bf16`, in tiles of 32 queries and 32 keys.
//!
//! As in `f32` ([`crate::cpu::attention`]), the scores of a block of queries are computed, used and dropped,
//! and backward computes them again. Scores and probabilities are `f32`, and are rounded where they are
//! operands of a product.

mod backward;
mod tiles;

use half::bf16;
use multiversion::multiversion;
use parking_lot::Mutex;

use self::tiles::{Tiles, Turned, scatter};
use super::left::Groups;
use super::panels::Panels;
use super::way::Way;
use super::{TILE, Tile};
use crate::cpu::attention::Sizes;
use crate::cpu::math::exp;
use crate::cpu::matrix::Matrix;
use crate::cpu::parts::{By, cut};

pub(crate) use self::backward::backward;

/// A head's part of rows whose length is `parts` times the width of all heads.
fn part(sizes: Sizes, numbers: &[bf16], parts: usize, which: usize, head: usize) -> Matrix<'_, bf16> {
    Matrix {
        numbers: &numbers[which * sizes.dim + head * sizes.width()..],
        rows: sizes.time,
        columns: sizes.width(),
        stride: parts * sizes.dim,
        turned: false,
    }
}

/// As [`crate::cpu::attention::forward`].
pub(crate) fn forward(out: &mut [bf16], lse: &mut [f32], qkv: &[bf16], sizes: Sizes) {
    let Sizes { time, heads, dim } = sizes;
    // Heads share rows, so a thread takes the lock once and writes a whole head.
    let out = Mutex::new(out);
    cut(By(lse, time), sizes.weight(), |first, lse| {
        for (index, lse) in (first..).zip(lse.chunks_exact_mut(time)) {
            let (sequence, head) = (index / heads, index % heads);
            let qkv = &qkv[sequence * time * 3 * dim..][..time * 3 * dim];
            let result = one_head(
                Way::here(),
                [0, 1, 2].map(|which| part(sizes, qkv, 3, which, head)),
                sizes.scale(),
                lse,
            );
            let mut out = out.lock();
            let out = &mut out[sequence * time * dim..][..time * dim];
            scatter(&result, out, [dim, head * sizes.width(), sizes.width()]);
        }
    });
}

/// The result of a head.
fn one_head(way: Way, [queries, keys, values]: [Matrix<'_, bf16>; 3], scale: f32, lse: &mut [f32]) -> Tiles {
    let (time, width) = (queries.rows, queries.columns);
    let blocks = time.div_ceil(TILE);
    let (queries, values) = (Panels::alone(queries.t()), Panels::alone(values));
    let mut keys = Groups::new(true, keys);
    let mut scores = Tiles::zeros([blocks, 1]);
    let mut weights = Turned::new(way.needs_rows(), blocks);
    let mut result = Tiles::zeros([blocks, width.div_ceil(TILE)]);
    for (block, lse) in lse.chunks_mut(TILE).enumerate() {
        let scores = &mut scores.all()[..=block];
        for (group, scores) in scores.iter_mut().enumerate() {
            let keys = keys.reach(group * TILE, group == block);
            way.set(scores, keys, queries.panel(block));
        }
        let scales = causal_softmax(scores, scale, lse);
        let weights = weights.of(scores);
        for (panel, result) in result.row(block).iter_mut().enumerate() {
            way.add(result, weights, &values.panel(panel)[..TILE * weights.depth]);
            multiply_rows(result, &scales);
        }
    }
    result
}

/// Multiplies each row by its factor.
#[multiversion(targets = "simd")]
fn multiply_rows(tile: &mut Tile, factors: &[f32; TILE]) {
    for (row, factor) in tile.iter_mut().zip(factors) {
        row.iter_mut().for_each(|number| *number *= factor);
    }
}

/// Sets the scores of keys after a query to negative infinity. They are in the last tile of a block.
#[inline(always)]
fn hide_later(scores: &mut [Tile]) {
    let last = scores.last_mut().into_iter().flatten();
    for (key, row) in last.enumerate() {
        for (query, score) in row.iter_mut().enumerate() {
            *score = if key > query { f32::NEG_INFINITY } else { *score };
        }
    }
}

/// Turns a block of scores, `[keys, queries]`, into probabilities. Returns for each query what its
/// probabilities must still be multiplied by.
#[multiversion(targets = "simd")]
fn causal_softmax(scores: &mut [Tile], scale: f32, lse: &mut [f32]) -> [f32; TILE] {
    hide_later(scores);
    let rows = scores.as_flattened_mut();
    let mut largest = [f32::NEG_INFINITY; TILE];
    for row in rows.iter() {
        for (largest, &score) in largest.iter_mut().zip(row) {
            *largest = if score > *largest { score } else { *largest };
        }
    }
    let mut totals = [0.0; TILE];
    for row in rows {
        for query in 0..TILE {
            row[query] = exp((row[query] - largest[query]) * scale);
            totals[query] += row[query];
        }
    }
    for (query, lse) in lse.iter_mut().enumerate() {
        *lse = largest[query] * scale + totals[query].ln();
    }
    totals.map(|total| 1.0 / total)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::real::Real;
    use crate::rng;

    #[test]
    fn every_way_gives_nearly_the_same() {
        let sizes = Sizes {
            time: 70,
            heads: 1,
            dim: 40,
        };
        let mut numbers = vec![0.0; 70 * 3 * 40];
        rng::fill_normal(rng::key(1, "numbers"), 1.0, &mut numbers);
        let numbers: Vec<bf16> = numbers.into_iter().map(bf16::narrow).collect();
        let run = |way| {
            let (mut lse, mut out) = (vec![0.0; 70], vec![bf16::ZERO; 70 * 40]);
            let qkv = [0, 1, 2].map(|which| part(sizes, &numbers, 3, which, 0));
            let result = one_head(way, qkv, sizes.scale(), &mut lse);
            scatter(&result, &mut out, [40, 0, 40]);
            out.into_iter().map(bf16::wide).chain(lse).collect::<Vec<f32>>()
        };
        let expected = run(Way::Widened);
        for &way in Way::ALL.iter().filter(|way| way.is_here()) {
            for (got, expected) in run(way).into_iter().zip(&expected) {
                assert!((got - expected).abs() < 0.02, "{way}: {got}, not {expected}");
            }
        }
    }
}
