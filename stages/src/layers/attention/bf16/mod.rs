//! Causal self-attention in `bf16`, in tiles of 32 queries and 32 keys.
//!
//! As in `f32` ([`super::cpu`]), the scores of a block of queries are computed, used and dropped, and
//! backward computes them again. Scores and probabilities are `f32`, and are rounded where they are operands
//! of a product.

pub(crate) mod backward;
pub(crate) mod tiles;

use half::bf16;
use multiversion::multiversion;
use parking_lot::Mutex;

use self::tiles::{Tiles, Turned, hide, part, scatter, tiles_of};
use crate::cpu::bf16_kernels::left::Groups;
use crate::cpu::bf16_kernels::panels::{Panels, TILE, Tile};
use crate::cpu::bf16_kernels::way::Way;
use crate::cpu::depth::Depth;
use crate::cpu::math::exp;
use crate::cpu::matrix::Matrix;
use crate::cpu::parts::{By, cut};
use crate::layers::attention::cpu::sizes::Sizes;
use crate::stage::borders::Spans;

pub(crate) use self::backward::backward;

/// As [`crate::layers::attention::cpu::forward`].
pub(crate) fn forward(out: &mut [bf16], lse: &mut [f32], qkv: &[bf16], sizes: Sizes, spans: Spans<'_>) {
    let (time, query, vectors) = (sizes.time, sizes.query, sizes.vectors());
    // Heads share rows, so a thread takes the lock once and writes a whole head.
    let out = Mutex::new(out);
    cut(By(lse, time), sizes.weight(spans.longest()), |first, lse| {
        for run in sizes.runs(first..first + lse.len() / time) {
            let sequence = run.start / query;
            for rows in spans.of(sequence) {
                let (sizes, row) = (sizes.of_document(rows.len()), sequence * time + rows.start);
                let qkv = sizes.rows(qkv, vectors, row);
                let part = |vector| part(sizes, qkv, vectors, vector);
                let keys_and_values = sizes.key_and_value(run.start % query / sizes.group()).map(part);
                let mut shared = Shared::new(Way::here(), sizes, keys_and_values);
                for index in run.clone() {
                    let head = index % query;
                    let result = shared.result(part(head), &mut lse[(index - first) * time..][rows.clone()]);
                    let mut out = out.lock();
                    let out = sizes.rows_mut(&mut out, query, row);
                    scatter(&result, out, sizes.columns(query, head));
                }
            }
        }
    });
}

/// Keys and values, and the query heads that share them.
struct Shared<'a> {
    way: Way,
    sizes: Sizes,
    keys: Groups<'a>,
    /// Whether a head has packed the keys.
    packed: bool,
    values: Panels,
}

impl<'a> Shared<'a> {
    fn new(way: Way, sizes: Sizes, [keys, values]: [Matrix<'a, bf16>; 2]) -> Self {
        Self {
            way,
            sizes,
            keys: Groups::new(true, keys, Depth::Whole(keys.columns)),
            packed: false,
            values: Panels::alone(values),
        }
    }

    /// The result of a query head.
    fn result(&mut self, queries: Matrix<'_, bf16>, lse: &mut [f32]) -> Tiles {
        let Self { way, sizes, .. } = *self;
        let blocks = sizes.time.div_ceil(TILE);
        let queries = Panels::alone(queries.t());
        let mut scores = Tiles::zeros([blocks, 1]);
        let mut weights = Turned::new(way.needs_rows(), blocks);
        let mut result = Tiles::zeros([blocks, sizes.width.div_ceil(TILE)]);
        for (block, lse) in lse.chunks_mut(TILE).enumerate() {
            let tiles = tiles_of(sizes, block);
            let scores = &mut scores.all()[..tiles.len()];
            for (group, scores) in tiles.clone().zip(&mut *scores) {
                let keys = self.keys.reach(group * TILE, group == block && !self.packed);
                way.set(scores, keys, queries.panel(block));
            }
            let scales = causal_softmax(scores, sizes, lse);
            let weights = weights.of(scores);
            for (panel, result) in result.row(block).iter_mut().enumerate() {
                let values = &self.values.panel(panel)[TILE * TILE * tiles.start..];
                way.add(result, weights, &values[..TILE * weights.depth]);
                multiply_rows(result, &scales);
            }
        }
        self.packed = true;
        result
    }
}

/// Multiplies each row by its factor.
#[multiversion(targets = "simd")]
fn multiply_rows(tile: &mut Tile, factors: &[f32; TILE]) {
    for (row, factor) in tile.iter_mut().zip(factors) {
        row.iter_mut().for_each(|number| *number *= factor);
    }
}

/// Turns a block of scores, `[keys, queries]`, into probabilities. Returns for each query what its
/// probabilities must still be multiplied by.
#[multiversion(targets = "simd")]
fn causal_softmax(scores: &mut [Tile], sizes: Sizes, lse: &mut [f32]) -> [f32; TILE] {
    hide(scores, sizes.window);
    let scale = sizes.scale();
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
        let sizes = Sizes { time: 70, query: 1, key_value: 1, width: 40, window: 50 };
        let mut numbers = vec![0.0; 70 * 3 * 40];
        rng::fill_normal(rng::key(1, "numbers"), 1.0, &mut numbers);
        let numbers: Vec<bf16> = numbers.into_iter().map(bf16::narrow).collect();
        let run = |way| {
            let (mut lse, mut out) = (vec![0.0; 70], vec![bf16::ZERO; 70 * 40]);
            let [queries, keys, values] = [0, 1, 2].map(|vector| part(sizes, &numbers, 3, vector));
            let result = Shared::new(way, sizes, [keys, values]).result(queries, &mut lse);
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
