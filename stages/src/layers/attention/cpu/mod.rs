//! Causal self-attention by blocks of query rows.
//!
//! The scores of a block are computed, used and dropped. Backward computes them again from the kept
//! logarithms of the row sums, as in Dao et al., "FlashAttention" (2022).

pub(crate) mod backward;
pub(crate) mod gathered;
pub(crate) mod next;
pub(crate) mod sizes;

use multiversion::multiversion;
use parking_lot::Mutex;

use self::gathered::{BLOCK, Gathered};
use self::sizes::{keys_of, padded};
use crate::cpu::math::exp;
use crate::cpu::parts::{By, cut};
use crate::cpu::small::{Size, product, turned_product};
use crate::pool::Buffer;
use crate::stage::borders::Spans;

pub(crate) use self::backward::backward;
pub(crate) use self::sizes::Sizes;

/// Computes attention for every query head of every document. Writes the logarithm of every row's sum of
/// exponentials to `lse`, `[sequences, query heads, time]`.
pub(crate) fn forward(out: &mut [f32], lse: &mut [f32], qkv: &[f32], sizes: Sizes, spans: Spans<'_>) {
    let (time, query, vectors) = (sizes.time, sizes.query, sizes.vectors());
    let longest = spans.longest();
    // Heads share rows, so a thread takes the lock once and writes a whole head.
    let out = Mutex::new(out);
    cut(By(lse, time), sizes.weight(longest), |first, lse| {
        let mut buffers = Head::new(sizes.of_document(longest));
        for run in sizes.runs(first..first + lse.len() / time) {
            let sequence = run.start / query;
            for rows in spans.of(sequence) {
                let (sizes, row) = (sizes.of_document(rows.len()), sequence * time + rows.start);
                buffers.sizes = sizes;
                let qkv = sizes.rows(qkv, vectors, row);
                let part = |vector| sizes.part(qkv, vectors, vector);
                let [key, value] = sizes.key_and_value(run.start % query / sizes.group());
                buffers.keys.gather(part(key), 1.0);
                buffers.values.gather(part(value), 1.0);
                for index in run.clone() {
                    let (head, lse) = (index % query, &mut lse[(index - first) * time..][rows.clone()]);
                    buffers.queries_turned.gather_turned(part(head), sizes.scale());
                    for (index, lse) in lse.chunks_mut(BLOCK).enumerate() {
                        buffers.block(index * BLOCK, lse);
                    }
                    let mut out = out.lock();
                    let out = sizes.rows_mut(&mut out, query, row);
                    let scales = &buffers.scales;
                    buffers.result.scatter(|row| scales[row], out, sizes.columns(query, head));
                }
            }
        }
    });
}

/// The working memory of forward, for one head.
struct Head {
    sizes: Sizes,
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
        let [rows, lanes] = padded(sizes);
        Self {
            sizes,
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
        let (lanes, keys) = (self.keys.stride, keys_of(self.sizes, start));
        let size = Size { rows: keys.len(), depth: lanes, columns: BLOCK };
        let queries = self.queries_turned.columns(start);
        product(self.scores.view_mut(0), size, self.keys.view(keys.start), queries);
        let scores = &mut self.scores.numbers[..keys.len() * BLOCK];
        let scales = &mut self.scales[start..start + BLOCK];
        causal_softmax(scores, self.sizes.window, lse, scales);
        let size = Size { rows: BLOCK, depth: keys.len(), columns: lanes };
        turned_product(self.result.view_mut(start), size, self.scores.view(0), self.values.view(keys.start));
    }
}

/// Turns a block of scores, `[keys, queries]`, into probabilities. Its last keys and its queries belong to
/// the same tokens. Keys after a query and before its window get probability 0. Each query's probabilities
/// must still be multiplied by its entry of `scales`.
#[multiversion(targets = "simd")]
fn causal_softmax(scores: &mut [f32], window: usize, lse: &mut [f32], scales: &mut [f32]) {
    let scores = scores.as_chunks_mut::<BLOCK>().0;
    let ahead = scores.len() - BLOCK;
    for (own, scores) in scores[ahead..].iter_mut().enumerate() {
        for (query, score) in scores.iter_mut().enumerate() {
            *score = if own > query { f32::NEG_INFINITY } else { *score };
        }
    }
    let hidden = (ahead + BLOCK).saturating_sub(window);
    for (key, scores) in scores[..hidden].iter_mut().enumerate() {
        for (query, score) in scores.iter_mut().enumerate() {
            let is_hidden = key + window <= ahead + query;
            *score = if is_hidden { f32::NEG_INFINITY } else { *score };
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
