//! The gradient of attention.

use multiversion::multiversion;
use parking_lot::Mutex;

use super::gathered::{BLOCK, Gathered, dots};
use super::sizes::{Sizes, keys_of, padded};
use crate::cpu::lanes::LANES;
use crate::cpu::math::exp;
use crate::cpu::parts::{By, cut};
use crate::cpu::small::{Size, add_turned_product, product};
use crate::pool::Buffer;
use crate::stage::borders::Spans;

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

/// Writes the gradient of queries, keys and values. One thread adds up the gradients of a key and value head,
/// over its query heads in their order.
pub(crate) fn backward(qkv_grad: &mut [f32], saved: Saved<'_, f32>, sizes: Sizes, spans: Spans<'_>) {
    let (time, group, vectors) = (sizes.time, sizes.group(), sizes.vectors());
    let (each, longest) = (group * time, spans.longest());
    let qkv_grad = Mutex::new(qkv_grad);
    cut(By(saved.lse, each), 2 * group * sizes.weight(longest), |first, lse| {
        let mut buffers = Head::new(sizes.of_document(longest));
        for (index, lse) in (first..).zip(lse.chunks_exact(each)) {
            let (sequence, shared) = (index / sizes.key_value, index % sizes.key_value);
            for rows in spans.of(sequence) {
                let (sizes, row) = (sizes.of_document(rows.len()), sequence * time + rows.start);
                let saved = Saved {
                    qkv: sizes.rows(saved.qkv, vectors, row),
                    out: sizes.rows(saved.out, sizes.query, row),
                    lse,
                    grad: sizes.rows(saved.grad, sizes.query, row),
                };
                buffers.sizes = sizes;
                buffers.gather_shared(saved, shared);
                for (head, lse) in (shared * group..).zip(lse.chunks_exact(time)) {
                    buffers.gather(saved, head);
                    for (index, lse) in lse[rows.clone()].chunks(BLOCK).enumerate() {
                        buffers.block(index * BLOCK, lse);
                    }
                    let mut qkv_grad = qkv_grad.lock();
                    let qkv_grad = sizes.rows_mut(&mut qkv_grad, vectors, row);
                    let columns = sizes.columns(vectors, head);
                    buffers.query_grads.scatter(|_| sizes.scale(), qkv_grad, columns);
                }
                let mut qkv_grad = qkv_grad.lock();
                buffers.scatter_shared(sizes.rows_mut(&mut qkv_grad, vectors, row), shared);
            }
        }
    });
}

/// The working memory of backward, for a key and value head and one of its query heads.
struct Head {
    sizes: Sizes,
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
        let [rows, lanes] = padded(sizes);
        let tall = || Gathered::zeros(rows, lanes);
        let wide = || Gathered::zeros(lanes, rows);
        let block = || Gathered::zeros(BLOCK, rows);
        Self {
            sizes,
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

    /// Gathers keys and values, and begins their gradients.
    fn gather_shared(&mut self, saved: Saved<'_, f32>, head: usize) {
        let [key, value] = self.sizes.key_and_value(head);
        let part = |vector| self.sizes.part(saved.qkv, self.sizes.vectors(), vector);
        self.keys.gather(part(key), 1.0);
        self.keys_turned.gather_turned(part(key), 1.0);
        self.values_turned.gather_turned(part(value), 1.0);
        let [rows, lanes] = padded(self.sizes);
        for grads in [&mut self.key_grads, &mut self.value_grads] {
            grads.numbers[..rows * lanes].fill(0.0);
        }
    }

    /// Gathers what belongs to a query head.
    fn gather(&mut self, saved: Saved<'_, f32>, head: usize) {
        let sizes = self.sizes;
        let queries = sizes.part(saved.qkv, sizes.vectors(), head);
        self.queries.gather(queries, sizes.scale());
        let [out, grad] = [saved.out, saved.grad].map(|rows| sizes.part(rows, sizes.query, head));
        self.grad.gather(grad, 1.0);
        dots(&mut self.along, out, grad);
    }

    /// Adds the gradients from one block of query rows.
    fn block(&mut self, start: usize, lse: &[f32]) {
        let (lanes, keys) = (self.queries.stride, keys_of(self.sizes, start));
        let (queries, grad) = (self.queries.view(start), self.grad.view(start));
        let size = Size { rows: BLOCK, depth: lanes, columns: keys.len() };
        let turned = self.keys_turned.columns(keys.start);
        product(self.scores.view_mut(0), size, queries, turned);
        let turned = self.values_turned.columns(keys.start);
        product(self.score_grads.view_mut(0), size, grad, turned);
        let along = &self.along[start..start + lse.len()];
        let [scores, score_grads] = [&mut self.scores, &mut self.score_grads];
        let place = (start - keys.start, self.sizes.window);
        causal_softmax_grad(scores, score_grads, place, lse, along);
        let size = Size { rows: BLOCK, depth: keys.len(), columns: lanes };
        product(self.query_grads.view_mut(start), size, self.score_grads.view(0), self.keys.view(keys.start));
        let size = Size { rows: keys.len(), depth: lse.len(), columns: lanes };
        add_turned_product(self.key_grads.view_mut(keys.start), size, self.score_grads.view(0), queries);
        add_turned_product(self.value_grads.view_mut(keys.start), size, self.scores.view(0), grad);
    }

    /// Writes the gradients of keys and values.
    fn scatter_shared(&self, qkv_grad: &mut [f32], head: usize) {
        let sizes = self.sizes;
        let grads = [&self.key_grads, &self.value_grads];
        for (grads, vector) in grads.into_iter().zip(sizes.key_and_value(head)) {
            grads.scatter(|_| 1.0, qkv_grad, sizes.columns(sizes.vectors(), vector));
        }
    }
}

/// Sets the numbers of a row after index `own` to negative infinity, within the register that holds the
/// index.
#[inline(always)]
fn hide_later(row: &mut [[f32; LANES]], own: usize) {
    for (lane, number) in row[own / LANES].iter_mut().enumerate() {
        *number = if lane > own % LANES { f32::NEG_INFINITY } else { *number };
    }
}

/// Sets the numbers of a row before index `first` to negative infinity.
#[inline(always)]
fn hide_earlier(row: &mut [[f32; LANES]], first: usize) {
    for (register, numbers) in row[..first.div_ceil(LANES)].iter_mut().enumerate() {
        for (lane, number) in numbers.iter_mut().enumerate() {
            let is_hidden = register * LANES + lane < first;
            *number = if is_hidden { f32::NEG_INFINITY } else { *number };
        }
    }
}

/// Turns a block of scores into probabilities, and the gradients of the probabilities into gradients of the
/// scores. `ahead` is the column of the first row's own key.
#[multiversion(targets = "simd")]
fn causal_softmax_grad(
    scores: &mut Gathered,
    grads: &mut Gathered,
    (ahead, window): (usize, usize),
    lse: &[f32],
    along: &[f32],
) {
    let stride = scores.stride;
    let rows = scores.numbers.chunks_exact_mut(stride).zip(grads.numbers.chunks_exact_mut(stride));
    for (own, ((scores, grads), (&lse, &along))) in (ahead..).zip(rows.zip(lse.iter().zip(along))) {
        let scores = &mut scores.as_chunks_mut::<LANES>().0[..own / LANES + 1];
        let grads = &mut grads.as_chunks_mut::<LANES>().0[..own / LANES + 1];
        hide_later(scores, own);
        hide_earlier(scores, (own + 1).saturating_sub(window));
        for (scores, grads) in scores.iter_mut().zip(grads) {
            for lane in 0..LANES {
                scores[lane] = exp(scores[lane] - lse);
                grads[lane] = scores[lane] * (grads[lane] - along);
            }
        }
    }
}
