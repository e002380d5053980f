//! The gradient of attention in `bf16`.

use half::bf16;
use multiversion::multiversion;
use parking_lot::Mutex;

use super::tiles::{Tiles, Turned, rounded, scatter};
use super::{hide_later, part};
use crate::cpu::attention::{Saved, Sizes};
use crate::cpu::halves::left::Groups;
use crate::cpu::halves::panels::Panels;
use crate::cpu::halves::way::Way;
use crate::cpu::halves::{TILE, Tile};
use crate::cpu::lanes::dot;
use crate::cpu::math::exp;
use crate::cpu::matrix::Matrix;
use crate::cpu::parts::{By, cut};

/// As [`crate::cpu::attention::backward`].
pub(crate) fn backward(qkv_grad: &mut [bf16], saved: Saved<'_, bf16>, sizes: Sizes) {
    let Sizes { time, heads, dim } = sizes;
    let width = sizes.width();
    let qkv_grad = Mutex::new(qkv_grad);
    cut(By(saved.lse, time), 2 * sizes.weight(), |first, lse| {
        for (index, lse) in (first..).zip(lse.chunks_exact(time)) {
            let (sequence, head) = (index / heads, index % heads);
            let rows = sequence * time * dim..(sequence + 1) * time * dim;
            let qkv = &saved.qkv[3 * rows.start..3 * rows.end];
            let grads = Head {
                qkv: [0, 1, 2].map(|which| part(sizes, qkv, 3, which, head)),
                out: part(sizes, &saved.out[rows.clone()], 1, 0, head),
                grad: part(sizes, &saved.grad[rows.clone()], 1, 0, head),
                lse,
                scale: sizes.scale(),
            }
            .grads(Way::here());
            let mut qkv_grad = qkv_grad.lock();
            let qkv_grad = &mut qkv_grad[3 * rows.start..3 * rows.end];
            for (which, grads) in grads.iter().enumerate() {
                scatter(grads, qkv_grad, [3 * dim, which * dim + head * width, width]);
            }
        }
    });
}

/// What backward reads of a head.
struct Head<'a> {
    qkv: [Matrix<'a, bf16>; 3],
    out: Matrix<'a, bf16>,
    grad: Matrix<'a, bf16>,
    lse: &'a [f32],
    scale: f32,
}

impl Head<'_> {
    /// The gradients of queries, keys and values.
    fn grads(&self, way: Way) -> [Tiles; 3] {
        let (time, width) = (self.out.rows, self.out.columns);
        let (blocks, panels) = (time.div_ceil(TILE), width.div_ceil(TILE));
        let [queries, keys, values] = self.qkv;
        let [queries_turned, grad_turned] = [queries, self.grad].map(|rows| Panels::alone(rows.t()));
        let [queries, keys_packed, grad] = [queries, keys, self.grad].map(Panels::alone);
        let [mut keys, mut values] = [keys, values].map(|rows| Groups::new(true, rows));
        let [mut scores, mut score_grads] = [0; 2].map(|_| Tiles::zeros([blocks, 1]));
        let mut turned = Turned::new(way.needs_rows(), blocks);
        let mut room = [bf16::ZERO; TILE * TILE];
        let [mut of_queries, mut of_keys, mut of_values] = [0; 3].map(|_| Tiles::zeros([blocks, panels]));
        for block in 0..blocks {
            let scores = &mut scores.all()[..=block];
            let score_grads = &mut score_grads.all()[..=block];
            for (group, (scores, grads)) in scores.iter_mut().zip(&mut *score_grads).enumerate() {
                let (row, first) = (group * TILE, group == block);
                way.set(scores, keys.reach(row, first), queries_turned.panel(block));
                way.set(grads, values.reach(row, first), grad_turned.panel(block));
            }
            let [lse, along] = self.of_block(block);
            causal_softmax_grad(scores, score_grads, self.scale, &lse, &along);
            let left = turned.of(score_grads);
            for (panel, grads) in of_queries.row(block).iter_mut().enumerate() {
                way.add(grads, left, &keys_packed.panel(panel)[..TILE * left.depth]);
            }
            let part = TILE * TILE * block..TILE * TILE * (block + 1);
            for (group, (scores, score_grads)) in scores.iter().zip(&*score_grads).enumerate() {
                for (tile, of_group, right) in [
                    (scores, of_values.row(group), &grad),
                    (score_grads, of_keys.row(group), &queries),
                ] {
                    let left = rounded(&mut room, tile);
                    for (panel, grads) in of_group.iter_mut().enumerate() {
                        way.add(grads, left, &right.panel(panel)[part.clone()]);
                    }
                }
            }
        }
        [of_queries, of_keys, of_values]
    }

    /// For each query of a block: the logarithm of its sum, and the scalar product of its output with the
    /// gradient. Queries past the end get no probabilities.
    fn of_block(&self, block: usize) -> [[f32; TILE]; 2] {
        let [mut lse, mut along] = [[f32::INFINITY; TILE], [0.0; TILE]];
        let rows = block * TILE..self.lse.len().min((block + 1) * TILE);
        lse[..rows.len()].copy_from_slice(&self.lse[rows.clone()]);
        dots(
            &mut along[..rows.len()],
            self.out.part(rows.clone()),
            self.grad.part(rows),
        );
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
    scale: f32,
    lse: &[f32; TILE],
    along: &[f32; TILE],
) {
    hide_later(scores);
    let rows = scores.as_flattened_mut().iter_mut();
    for (scores, grads) in rows.zip(grads.as_flattened_mut()) {
        for query in 0..TILE {
            scores[query] = exp(scores[query] * scale - lse[query]);
            grads[query] = scores[query] * (grads[query] - along[query]) * scale;
        }
    }
}
