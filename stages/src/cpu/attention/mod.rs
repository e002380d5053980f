//! Causal self-attention by blocks of query rows.
//!
//! The scores of a block are computed, used and dropped. Backward computes them again from the kept
//! logarithms of the row sums, as in Dao et al., "FlashAttention" (2022).

mod backward;
mod gathered;

use multiversion::multiversion;
use parking_lot::Mutex;

use self::gathered::{Gathered, Part};
use super::lanes::LANES;
use super::math::exp;
use super::parts::{By, EXP, PRODUCTS, cut};
use super::small::{Size, View, product, turned_product};
use crate::pool::Buffer;

pub(crate) use self::backward::{Saved, backward};

/// Query rows in a block.
const BLOCK: usize = 16;

/// The sizes of the heads. A row has `3 * dim` numbers: the queries, keys and values of all heads side by
/// side.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// The number of rows of one sequence.
    pub(crate) time: usize,
    /// The number of heads.
    pub(crate) heads: usize,
    /// The width of all heads together.
    pub(crate) dim: usize,
}

impl Sizes {
    /// The width of a head.
    pub(crate) fn width(self) -> usize {
        self.dim / self.heads
    }

    /// The factor that scores are multiplied by.
    pub(crate) fn scale(self) -> f32 {
        1.0 / (self.width() as f32).sqrt()
    }

    /// The width of a head, rounded up to whole registers.
    fn lanes(self) -> usize {
        self.width().next_multiple_of(LANES)
    }

    /// The rows of a sequence, rounded up to whole blocks.
    fn rows(self) -> usize {
        self.time.next_multiple_of(BLOCK)
    }

    /// The estimated work for one head of one sequence, in the units of [`cut`].
    pub(in crate::cpu) fn weight(self) -> usize {
        self.time * self.time * (self.width() / PRODUCTS + EXP)
    }

    /// A head's part of rows whose length is `parts` times `dim`.
    fn part(self, numbers: &[f32], parts: usize, which: usize, head: usize) -> Part<'_> {
        let offset = which * self.dim + head * self.width();
        Part {
            numbers,
            stride: parts * self.dim,
            offset,
            width: self.width(),
        }
    }
}

/// Computes attention for every head of every sequence. Writes the logarithm of every row's sum of
/// exponentials to `lse`, `[sequences, heads, time]`.
pub(crate) fn forward(out: &mut [f32], lse: &mut [f32], qkv: &[f32], sizes: Sizes) {
    let Sizes { time, heads, dim } = sizes;
    // Heads share rows, so a thread takes the lock once and writes a whole head.
    let out = Mutex::new(out);
    cut(By(lse, time), sizes.weight(), |first, lse| {
        let mut buffers = Head::new(sizes);
        for (index, lse) in (first..).zip(lse.chunks_exact_mut(time)) {
            let (sequence, head) = (index / heads, index % heads);
            let qkv = &qkv[sequence * time * 3 * dim..][..time * 3 * dim];
            let part = |which| sizes.part(qkv, 3, which, head);
            buffers.queries_turned.gather_turned(part(0), sizes.scale());
            buffers.keys.gather(part(1), 1.0);
            buffers.values.gather(part(2), 1.0);
            for (index, lse) in lse.chunks_mut(BLOCK).enumerate() {
                buffers.block(index * BLOCK, lse);
            }
            let (width, scales) = (sizes.width(), &buffers.scales);
            let columns = [dim, head * width, width];
            let mut out = out.lock();
            let out = &mut out[sequence * time * dim..][..time * dim];
            buffers.result.scatter(|row| scales[row], out, columns);
        }
    });
}

/// The working memory of forward, for one head.
struct Head {
    queries_turned: Gathered,
    keys: Gathered,
    values: Gathered,
    /// The scores of a block, `[keys, queries]`.
    scores: Gathered,
    result: Gathered,
    /// The factor that each row of the result must still be multiplied by.
    scales: Buffer,
}

impl Head {
    fn new(sizes: Sizes) -> Self {
        let (rows, lanes) = (sizes.rows(), sizes.lanes());
        Self {
            queries_turned: Gathered::zeros(lanes, rows),
            keys: Gathered::zeros(rows, lanes),
            values: Gathered::zeros(rows, lanes),
            scores: Gathered::zeros(rows, BLOCK),
            result: Gathered::zeros(rows, lanes),
            scales: Buffer::pooled(rows),
        }
    }

    /// The result of a block of query rows.
    fn block(&mut self, start: usize, lse: &mut [f32]) {
        let (lanes, end) = (self.keys.stride, start + BLOCK);
        let size = Size {
            rows: end,
            depth: lanes,
            columns: BLOCK,
        };
        let queries = View {
            numbers: &self.queries_turned.numbers[start..],
            stride: self.queries_turned.stride,
        };
        product(self.scores.view_mut(0), size, self.keys.view(0), queries);
        let scales = &mut self.scales[start..end];
        causal_softmax(&mut self.scores.numbers, start, lse, scales);
        let size = Size {
            rows: BLOCK,
            depth: end,
            columns: lanes,
        };
        turned_product(
            self.result.view_mut(start),
            size,
            self.scores.view(0),
            self.values.view(0),
        );
    }
}

/// Sets the numbers of a row after index `own` to negative infinity, within the register that holds the
/// index.
#[inline(always)]
fn hide_later(row: &mut [[f32; LANES]], own: usize) {
    for (lane, number) in row[own / LANES].iter_mut().enumerate() {
        *number = if lane > own % LANES {
            f32::NEG_INFINITY
        } else {
            *number
        };
    }
}

/// Turns a block of scores, `[keys, queries]`, into probabilities. The block's first query is `start`. Keys
/// after a query get probability 0. Each query's probabilities must still be multiplied by its entry of
/// `scales`.
#[multiversion(targets = "simd")]
fn causal_softmax(scores: &mut [f32], start: usize, lse: &mut [f32], scales: &mut [f32]) {
    let scores = &mut scores.as_chunks_mut::<BLOCK>().0[..start + BLOCK];
    for (own, scores) in scores[start..].iter_mut().enumerate() {
        for (query, score) in scores.iter_mut().enumerate() {
            *score = if own > query { f32::NEG_INFINITY } else { *score };
        }
    }
    let mut largest = [f32::NEG_INFINITY; BLOCK];
    for scores in scores.iter() {
        for (largest, &score) in largest.iter_mut().zip(scores) {
            *largest = if score > *largest { score } else { *largest };
        }
    }
    let mut totals = [0.0; BLOCK];
    for scores in scores {
        for query in 0..BLOCK {
            scores[query] = exp(scores[query] - largest[query]);
            totals[query] += scores[query];
        }
    }
    for (query, scale) in scales.iter_mut().enumerate() {
        *scale = 1.0 / totals[query];
    }
    for (query, lse) in lse.iter_mut().enumerate() {
        *lse = largest[query] + totals[query].ln();
    }
}
