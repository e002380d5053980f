//! The gradient of attention.

use multiversion::multiversion;
use parking_lot::Mutex;

use super::gathered::{Gathered, dots};
use super::{BLOCK, Sizes, hide_later};
use crate::cpu::lanes::LANES;
use crate::cpu::math::exp;
use crate::cpu::parts::{By, cut};
use crate::cpu::small::{Size, add_turned_product, product};
use crate::pool::Buffer;

/// What backward reads: what forward kept, and the output gradient.
#[derive(Clone, Copy)]
pub(crate) struct Saved<'a, N> {
    /// Queries, keys and values.
    pub(crate) qkv: &'a [N],
    /// The output.
    pub(crate) out: &'a [N],
    /// The logarithm of every row's sum of exponentials.
    pub(crate) lse: &'a [f32],
    /// The output gradient.
    pub(crate) grad: &'a [N],
}

/// Writes the gradient of queries, keys and values.
pub(crate) fn backward(qkv_grad: &mut [f32], saved: Saved<'_, f32>, sizes: Sizes) {
    let Sizes { time, heads, dim } = sizes;
    let qkv_grad = Mutex::new(qkv_grad);
    cut(By(saved.lse, time), 2 * sizes.weight(), |first, lse| {
        let mut buffers = Head::new(sizes);
        for (index, lse) in (first..).zip(lse.chunks_exact(time)) {
            let (sequence, head) = (index / heads, index % heads);
            let rows = sequence * time * dim..(sequence + 1) * time * dim;
            let qkv = &saved.qkv[3 * rows.start..3 * rows.end];
            let (out, grad) = (&saved.out[rows.clone()], &saved.grad[rows.clone()]);
            buffers.gather(Saved { qkv, out, lse, grad }, sizes, head);
            for (index, lse) in lse.chunks(BLOCK).enumerate() {
                buffers.block(index * BLOCK, lse);
            }
            let mut qkv_grad = qkv_grad.lock();
            buffers.scatter(&mut qkv_grad[3 * rows.start..3 * rows.end], sizes, head);
        }
    });
}

/// The working memory of backward, for one head.
struct Head {
    queries: Gathered,
    keys: Gathered,
    keys_turned: Gathered,
    values_turned: Gathered,
    grad: Gathered,
    /// The scalar product of every row of the output with its gradient.
    along: Buffer,
    scores: Gathered,
    score_grads: Gathered,
    query_grads: Gathered,
    key_grads: Gathered,
    value_grads: Gathered,
}

impl Head {
    fn new(sizes: Sizes) -> Self {
        let (rows, lanes) = (sizes.rows(), sizes.lanes());
        let tall = || Gathered::zeros(rows, lanes);
        let wide = || Gathered::zeros(lanes, rows);
        let block = || Gathered::zeros(BLOCK, rows);
        Self {
            queries: tall(),
            keys: tall(),
            keys_turned: wide(),
            values_turned: wide(),
            grad: tall(),
            along: Buffer::pooled(sizes.time),
            scores: block(),
            score_grads: block(),
            query_grads: tall(),
            key_grads: tall(),
            value_grads: tall(),
        }
    }

    fn gather(&mut self, saved: Saved<'_, f32>, sizes: Sizes, head: usize) {
        let qkv = |which| sizes.part(saved.qkv, 3, which, head);
        self.queries.gather(qkv(0), sizes.scale());
        self.keys.gather(qkv(1), 1.0);
        self.keys_turned.gather_turned(qkv(1), 1.0);
        self.values_turned.gather_turned(qkv(2), 1.0);
        let grad = sizes.part(saved.grad, 1, 0, head);
        self.grad.gather(grad, 1.0);
        dots(&mut self.along, sizes.part(saved.out, 1, 0, head), grad);
        self.key_grads.numbers.fill(0.0);
        self.value_grads.numbers.fill(0.0);
    }

    /// Adds the gradients from one block of query rows.
    fn block(&mut self, start: usize, lse: &[f32]) {
        let (lanes, end) = (self.queries.stride, start + BLOCK);
        let (queries, grad) = (self.queries.view(start), self.grad.view(start));
        let size = Size {
            rows: BLOCK,
            depth: lanes,
            columns: end,
        };
        product(self.scores.view_mut(0), size, queries, self.keys_turned.view(0));
        product(
            self.score_grads.view_mut(0),
            size,
            grad,
            self.values_turned.view(0),
        );
        let along = &self.along[start..start + lse.len()];
        causal_softmax_grad(&mut self.scores, &mut self.score_grads, start, lse, along);
        let size = Size {
            rows: BLOCK,
            depth: end,
            columns: lanes,
        };
        product(
            self.query_grads.view_mut(start),
            size,
            self.score_grads.view(0),
            self.keys.view(0),
        );
        let size = Size {
            rows: end,
            depth: lse.len(),
            columns: lanes,
        };
        add_turned_product(
            self.key_grads.view_mut(0),
            size,
            self.score_grads.view(0),
            queries,
        );
        add_turned_product(self.value_grads.view_mut(0), size, self.scores.view(0), grad);
    }

    fn scatter(&self, qkv_grad: &mut [f32], sizes: Sizes, head: usize) {
        let (dim, width) = (sizes.dim, sizes.width());
        let parts = [
            (&self.query_grads, sizes.scale()),
            (&self.key_grads, 1.0),
            (&self.value_grads, 1.0),
        ];
        for (which, (grads, scale)) in parts.into_iter().enumerate() {
            grads.scatter(|_| scale, qkv_grad, [3 * dim, which * dim + head * width, width]);
        }
    }
}

/// Turns a block of scores into probabilities, and the gradients of the probabilities into gradients of the
/// scores.
#[multiversion(targets = "simd")]
fn causal_softmax_grad(
    scores: &mut Gathered,
    grads: &mut Gathered,
    start: usize,
    lse: &[f32],
    along: &[f32],
) {
    let stride = scores.stride;
    let rows = scores
        .numbers
        .chunks_exact_mut(stride)
        .zip(grads.numbers.chunks_exact_mut(stride));
    for (own, ((scores, grads), (&lse, &along))) in (start..).zip(rows.zip(lse.iter().zip(along))) {
        let scores = &mut scores.as_chunks_mut::<LANES>().0[..own / LANES + 1];
        let grads = &mut grads.as_chunks_mut::<LANES>().0[..own / LANES + 1];
        hide_later(scores, own);
        for (scores, grads) in scores.iter_mut().zip(grads) {
            for lane in 0..LANES {
                scores[lane] = exp(scores[lane] - lse);
                grads[lane] = scores[lane] * (grads[lane] - along);
            }
        }
    }
}
