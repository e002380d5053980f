//! The gradient of attention in `bf16`.

use half::bf16;
use multiversion::multiversion;
use parking_lot::Mutex;

use super::tiles::{Tiles, Turned, hide, part, rounded, scatter, tiles_of};
use crate::cpu::bf16_kernels::left::Groups;
use crate::cpu::bf16_kernels::panels::{Panels, TILE, Tile};
use crate::cpu::bf16_kernels::way::Way;
use crate::cpu::depth::Depth;
use crate::cpu::lanes::dot;
use crate::cpu::math::exp;
use crate::cpu::matrix::Matrix;
use crate::cpu::parts::{By, cut};
use crate::layers::attention::cpu::backward::Saved;
use crate::layers::attention::cpu::sizes::Sizes;
use crate::stage::borders::Spans;

/// As [`crate::layers::attention::cpu::backward`].
pub(crate) fn backward(qkv_grad: &mut [bf16], saved: Saved<'_, bf16>, sizes: Sizes, spans: Spans<'_>) {
    let (time, query, group, vectors) = (sizes.time, sizes.query, sizes.group(), sizes.vectors());
    let each = group * time;
    let qkv_grad = Mutex::new(qkv_grad);
    cut(By(saved.lse, each), 2 * group * sizes.weight(spans.longest()), |first, lse| {
        for (index, lse) in (first..).zip(lse.chunks_exact(each)) {
            let (sequence, shared) = (index / sizes.key_value, index % sizes.key_value);
            for rows in spans.of(sequence) {
                let (sizes, row) = (sizes.of_document(rows.len()), sequence * time + rows.start);
                let write = |grads: &Tiles, vector| {
                    let mut qkv_grad = qkv_grad.lock();
                    let qkv_grad = sizes.rows_mut(&mut qkv_grad, vectors, row);
                    scatter(grads, qkv_grad, sizes.columns(vectors, vector));
                };
                let qkv = sizes.rows(saved.qkv, vectors, row);
                let places = sizes.key_and_value(shared);
                let keys_and_values = places.map(|vector| part(sizes, qkv, vectors, vector));
                let mut grads = Shared::new(Way::here(), sizes, keys_and_values);
                for (head, lse) in (shared * group..).zip(lse.chunks_exact(time)) {
                    let own = |numbers| part(sizes, sizes.rows(numbers, query, row), query, head);
                    let of_queries = grads.add(Head {
                        queries: part(sizes, qkv, vectors, head),
                        out: own(saved.out),
                        grad: own(saved.grad),
                        lse: &lse[rows.clone()],
                    });
                    write(&of_queries, head);
                }
                write(&grads.of_keys, places[0]);
                write(&grads.of_values, places[1]);
            }
        }
    });
}

/// Keys and values, and the sums of their gradients over the query heads that share them.
struct Shared<'a> {
    way: Way,
    sizes: Sizes,
    keys: Groups<'a>,
    values: Groups<'a>,
    /// Whether a head has packed these keys and values.
    packed: bool,
    keys_packed: Panels,
    of_keys: Tiles,
    of_values: Tiles,
}

impl<'a> Shared<'a> {
    fn new(way: Way, sizes: Sizes, [keys, values]: [Matrix<'a, bf16>; 2]) -> Self {
        let zeros = || Tiles::zeros([sizes.time.div_ceil(TILE), sizes.width.div_ceil(TILE)]);
        Self {
            way,
            sizes,
            keys: Groups::new(true, keys, Depth::Whole(keys.columns)),
            values: Groups::new(true, values, Depth::Whole(values.columns)),
            packed: false,
            keys_packed: Panels::alone(keys),
            of_keys: zeros(),
            of_values: zeros(),
        }
    }

    /// Adds the gradients from a query head. Returns the gradient of its queries.
    fn add(&mut self, head: Head<'_>) -> Tiles {
        let Self { way, sizes, .. } = *self;
        let blocks = sizes.time.div_ceil(TILE);
        let [queries_turned, grad_turned] = [head.queries, head.grad].map(|rows| Panels::alone(rows.t()));
        let [queries, grad] = [head.queries, head.grad].map(Panels::alone);
        let [mut scores, mut score_grads] = [0; 2].map(|_| Tiles::zeros([blocks, 1]));
        let mut turned = Turned::new(way.needs_rows(), blocks);
        let mut of_queries = Tiles::zeros([blocks, sizes.width.div_ceil(TILE)]);
        for block in 0..blocks {
            let tiles = tiles_of(sizes, block);
            let scores = &mut scores.all()[..tiles.len()];
            let score_grads = &mut score_grads.all()[..tiles.len()];
            for (group, (scores, grads)) in tiles.clone().zip(scores.iter_mut().zip(&mut *score_grads)) {
                let (row, first) = (group * TILE, group == block && !self.packed);
                way.set(scores, self.keys.reach(row, first), queries_turned.panel(block));
                way.set(grads, self.values.reach(row, first), grad_turned.panel(block));
            }
            let [lse, along] = head.of_block(block);
            causal_softmax_grad(scores, score_grads, sizes, &lse, &along);
            let left = turned.of(score_grads);
            for (panel, grads) in of_queries.row(block).iter_mut().enumerate() {
                let keys = &self.keys_packed.panel(panel)[TILE * TILE * tiles.start..];
                way.add(grads, left, &keys[..TILE * left.depth]);
            }
            self.add_block(block, scores, [&grad, &queries], score_grads);
        }
        self.packed = true;
        of_queries
    }

    /// Adds the gradients of keys and values from a block of queries.
    fn add_block(&mut self, block: usize, scores: &[Tile], [grad, queries]: [&Panels; 2], grads: &[Tile]) {
        let mut room = [bf16::ZERO; TILE * TILE];
        let part = TILE * TILE * block..TILE * TILE * (block + 1);
        for (group, (scores, grads)) in tiles_of(self.sizes, block).zip(scores.iter().zip(grads)) {
            for (tile, of_group, right) in
                [(scores, self.of_values.row(group), grad), (grads, self.of_keys.row(group), queries)]
            {
                let left = rounded(&mut room, tile);
                for (panel, grads) in of_group.iter_mut().enumerate() {
                    self.way.add(grads, left, &right.panel(panel)[part.clone()]);
                }
            }
        }
    }
}

/// What backward reads of a query head.
struct Head<'a> {
    queries: Matrix<'a, bf16>,
    out: Matrix<'a, bf16>,
    grad: Matrix<'a, bf16>,
    lse: &'a [f32],
}

impl Head<'_> {
    /// For each query of a block: the logarithm of its sum, and the scalar product of its output with the
    /// gradient. Queries past the end get no probabilities.
    fn of_block(&self, block: usize) -> [[f32; TILE]; 2] {
        let [mut lse, mut along] = [[f32::INFINITY; TILE], [0.0; TILE]];
        let rows = block * TILE..self.lse.len().min((block + 1) * TILE);
        lse[..rows.len()].copy_from_slice(&self.lse[rows.clone()]);
        dots(&mut along[..rows.len()], self.out.part(rows.clone()), self.grad.part(rows));
        [lse, along]
    }
}

/// The scalar products of the rows of two matrices.
#[multiversion(targets = "simd")]
fn dots(out: &mut [f32], a: Matrix<'_, bf16>, b: Matrix<'_, bf16>) {
    for (row, out) in out.iter_mut().enumerate() {
        let [a, b] = [a, b].map(|rows| &rows.row(row)[..rows.columns]);
        *out = dot(a, b);
    }
}

/// Turns a block of scores, `[keys, queries]`, into probabilities, and the gradients of the probabilities
/// into gradients of the products of queries and keys.
#[multiversion(targets = "simd")]
fn causal_softmax_grad(
    scores: &mut [Tile],
    grads: &mut [Tile],
    sizes: Sizes,
    lse: &[f32; TILE],
    along: &[f32; TILE],
) {
    hide(scores, sizes.window);
    let scale = sizes.scale();
    let rows = scores.as_flattened_mut().iter_mut();
    for (scores, grads) in rows.zip(grads.as_flattened_mut()) {
        for query in 0..TILE {
            scores[query] = exp(scores[query] * scale - lse[query]);
            grads[query] = scores[query] * (grads[query] - along[query]) * scale;
        }
    }
}
