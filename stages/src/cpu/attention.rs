//! Causal self-attention by blocks of query rows, straight on the interleaved rows of queries, keys and values.
//!
//! A block's scores are formed, used and dropped; backward forms them again from the kept logarithms of the row sums,
//! as in Dao et al., "FlashAttention" (2022).

use multiversion::multiversion;

use super::lanes;
use super::math::exp;
use super::matmul::{Matrix, MatrixMut, Old, matmul};
use super::softmax::exp_and_sum;
use crate::pool::Buffer;

/// Query rows in a block.
const BLOCK: usize = 64;

/// The sizes of one head in rows of `3 * dim` numbers: queries, keys, values of all heads side by side.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// Rows of one sequence.
    pub(crate) time: usize,
    /// Number of heads.
    pub(crate) heads: usize,
    /// The width of all heads together.
    pub(crate) dim: usize,
}

impl Sizes {
    fn width(self) -> usize {
        self.dim / self.heads
    }

    fn scale(self) -> f32 {
        1.0 / (self.width() as f32).sqrt()
    }

    fn blocks(self) -> impl DoubleEndedIterator<Item = (usize, usize)> {
        (0..self.time)
            .step_by(BLOCK)
            .map(move |start| (start, (start + BLOCK).min(self.time)))
    }
}

/// A head's view of rows `start..end`; `part` is 0 for queries, 1 for keys, 2 for values.
fn rows(qkv: &[f32], sizes: Sizes, head: usize, part: usize, (start, end): (usize, usize)) -> Matrix<'_> {
    let at = start * 3 * sizes.dim + part * sizes.dim + head * sizes.width();
    Matrix::strided(&qkv[at..], end - start, sizes.width(), 3 * sizes.dim)
}

fn rows_mut(
    qkv: &mut [f32],
    sizes: Sizes,
    head: usize,
    part: usize,
    (start, end): (usize, usize),
) -> MatrixMut<'_> {
    let at = start * 3 * sizes.dim + part * sizes.dim + head * sizes.width();
    MatrixMut::strided(&mut qkv[at..], end - start, sizes.width(), 3 * sizes.dim)
}

/// Attends over every head of every sequence. `lse` receives the logarithm of every row's sum of exponentials,
/// `[sequences, heads, time]`.
pub(crate) fn forward(out: &mut [f32], lse: &mut [f32], qkv: &[f32], sizes: Sizes) {
    let Sizes { time, heads, dim } = sizes;
    let mut scores = Buffer::pooled(BLOCK.min(time) * time);
    let sequences = qkv
        .chunks_exact(time * 3 * dim)
        .zip(out.chunks_exact_mut(time * dim));
    for ((qkv, out), lse) in sequences.zip(lse.chunks_exact_mut(heads * time)) {
        for (head, lse) in lse.chunks_exact_mut(time).enumerate() {
            for block in sizes.blocks() {
                let (start, end) = block;
                let scores = &mut scores[..(end - start) * end];
                let keys = rows(qkv, sizes, head, 1, (0, end));
                let queries = rows(qkv, sizes, head, 0, block);
                matmul(
                    MatrixMut::new(scores, end),
                    Old::Drop,
                    sizes.scale(),
                    queries,
                    keys.t(),
                );
                causal_softmax(scores, start, end, &mut lse[start..end]);
                let values = rows(qkv, sizes, head, 2, (0, end));
                let out = &mut out[start * dim + head * sizes.width()..];
                let out = MatrixMut::strided(out, end - start, sizes.width(), dim);
                matmul(out, Old::Drop, 1.0, Matrix::new(scores, end), values);
            }
        }
    }
}

/// Turns rows `start..end` of scores over `end` keys into probabilities; keys after a row's own get none.
#[multiversion(targets = "simd")]
fn causal_softmax(scores: &mut [f32], start: usize, end: usize, lse: &mut [f32]) {
    for ((index, row), lse) in scores.chunks_exact_mut(end).enumerate().zip(lse) {
        let (seen, unseen) = row.split_at_mut(start + index + 1);
        let largest = lanes::max(seen);
        let total = exp_and_sum(seen, largest);
        let scale = 1.0 / total;
        for number in seen {
            *number *= scale;
        }
        unseen.fill(0.0);
        *lse = largest + total.ln();
    }
}

/// What backward reads: all as forward left it, and the output gradient.
#[derive(Clone, Copy)]
pub(crate) struct Saved<'a> {
    /// Queries, keys and values.
    pub(crate) qkv: &'a [f32],
    /// The output.
    pub(crate) out: &'a [f32],
    /// The logarithm of every row's sum.
    pub(crate) lse: &'a [f32],
    /// The output gradient.
    pub(crate) grad: &'a [f32],
}

/// Writes the gradient of queries, keys and values.
pub(crate) fn backward(qkv_grad: &mut [f32], saved: Saved<'_>, sizes: Sizes) {
    let Sizes { time, heads, dim } = sizes;
    let mut scores = Buffer::pooled(BLOCK.min(time) * time);
    let mut score_grads = Buffer::pooled(BLOCK.min(time) * time);
    for (sequence, qkv_grad) in qkv_grad.chunks_exact_mut(time * 3 * dim).enumerate() {
        let outer = sequence * time * dim..(sequence + 1) * time * dim;
        let lse = &saved.lse[sequence * heads * time..(sequence + 1) * heads * time];
        let saved = Saved {
            qkv: &saved.qkv[3 * outer.start..3 * outer.end],
            out: &saved.out[outer.clone()],
            lse,
            grad: &saved.grad[outer],
        };
        for head in 0..heads {
            // The last block sees every key: it writes the gradients that the others add to.
            let mut old = Old::Drop;
            for block in sizes.blocks().rev() {
                backward_block(
                    qkv_grad,
                    saved,
                    sizes,
                    head,
                    block,
                    old,
                    [&mut scores, &mut score_grads],
                );
                old = Old::Keep;
            }
        }
    }
}

fn backward_block(
    qkv_grad: &mut [f32],
    saved: Saved<'_>,
    sizes: Sizes,
    head: usize,
    block: (usize, usize),
    old: Old,
    [scores, score_grads]: [&mut [f32]; 2],
) {
    let Sizes { time, dim, .. } = sizes;
    let (start, end) = block;
    let count = end - start;
    let (scores, score_grads) = (&mut scores[..count * end], &mut score_grads[..count * end]);
    let part = |part, block| rows(saved.qkv, sizes, head, part, block);
    let at = start * dim + head * sizes.width();
    let grad = Matrix::strided(&saved.grad[at..], count, sizes.width(), dim);

    matmul(
        MatrixMut::new(scores, end),
        Old::Drop,
        sizes.scale(),
        part(0, block),
        part(1, (0, end)).t(),
    );
    matmul(
        MatrixMut::new(score_grads, end),
        Old::Drop,
        1.0,
        grad,
        part(2, (0, end)).t(),
    );
    let lse = &saved.lse[head * time + start..head * time + end];
    let outs = Heads {
        out: &saved.out[at..],
        grad: &saved.grad[at..],
        dim,
        width: sizes.width(),
    };
    causal_softmax_grad(scores, score_grads, start, end, lse, outs);
    let (scores, score_grads) = (Matrix::new(scores, end), Matrix::new(score_grads, end));
    matmul(
        rows_mut(qkv_grad, sizes, head, 2, (0, end)),
        old,
        1.0,
        scores.t(),
        grad,
    );
    matmul(
        rows_mut(qkv_grad, sizes, head, 1, (0, end)),
        old,
        sizes.scale(),
        score_grads.t(),
        part(0, block),
    );
    matmul(
        rows_mut(qkv_grad, sizes, head, 0, block),
        Old::Drop,
        sizes.scale(),
        score_grads,
        part(1, (0, end)),
    );
}

/// A head's output and output gradient: rows of `width` numbers, `dim` apart.
#[derive(Clone, Copy)]
struct Heads<'a> {
    out: &'a [f32],
    grad: &'a [f32],
    dim: usize,
    width: usize,
}

/// Turns scores into probabilities and the gradients of probabilities into gradients of scores.
#[multiversion(targets = "simd")]
fn causal_softmax_grad(
    scores: &mut [f32],
    grads: &mut [f32],
    start: usize,
    end: usize,
    lse: &[f32],
    heads: Heads<'_>,
) {
    let rows = scores
        .chunks_exact_mut(end)
        .zip(grads.chunks_exact_mut(end))
        .zip(lse)
        .enumerate();
    for (index, ((scores, grads), &lse)) in rows {
        let at = index * heads.dim..index * heads.dim + heads.width;
        let along = lanes::dot(&heads.out[at.clone()], &heads.grad[at]);
        let (seen, unseen) = scores.split_at_mut(start + index + 1);
        for (score, grad) in seen.iter_mut().zip(grads.iter_mut()) {
            *score = exp(*score - lse);
            *grad = *score * (*grad - along);
        }
        unseen.fill(0.0);
        grads[start + index + 1..].fill(0.0);
    }
}
