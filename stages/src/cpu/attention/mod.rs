//! Causal self-attention by blocks of query rows.
//!
//! A block's scores are formed, used and dropped; backward forms them again from the kept logarithms of the row sums,
//! as in Dao et al., "FlashAttention" (2022).

mod backward;
mod gathered;

use std::sync::{Mutex, PoisonError};

use multiversion::multiversion;

use self::gathered::{Gathered, Part};
use super::lanes::{self, LANES};
use super::math::exp;
use super::parts::{By, EXP, PRODUCTS, cut};
use super::small::{Size, product};

pub(crate) use self::backward::{Saved, backward};

/// Query rows in a block.
const BLOCK: usize = 16;

/// The sizes of the heads in rows of `3 * dim` numbers: queries, keys, values of all heads side by side.
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
    /// The width of a head.
    fn width(self) -> usize {
        self.dim / self.heads
    }

    /// What scores are multiplied by.
    fn scale(self) -> f32 {
        1.0 / (self.width() as f32).sqrt()
    }

    /// The width of a head in whole lanes.
    fn lanes(self) -> usize {
        self.width().next_multiple_of(LANES)
    }

    /// The rows of a sequence in whole blocks.
    fn rows(self) -> usize {
        self.time.next_multiple_of(BLOCK)
    }

    /// What a head of a sequence weighs when work is cut into parts.
    fn weight(self) -> usize {
        self.time * self.time * (self.width() / PRODUCTS + EXP)
    }

    /// A head's part of rows that hold `parts` times the numbers of all heads.
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

/// Attends over every head of every sequence. `lse` receives the logarithm of every row's sum of exponentials,
/// `[sequences, heads, time]`.
pub(crate) fn forward(out: &mut [f32], lse: &mut [f32], qkv: &[f32], sizes: Sizes) {
    let Sizes { time, heads, dim } = sizes;
    // Heads share rows: each is written in one go.
    let out = Mutex::new(out);
    cut(By(lse, time), sizes.weight(), |first, lse| {
        let mut buffers = Head::new(sizes);
        for (index, lse) in (first..).zip(lse.chunks_exact_mut(time)) {
            let (sequence, head) = (index / heads, index % heads);
            let qkv = &qkv[sequence * time * 3 * dim..][..time * 3 * dim];
            buffers.queries.gather(sizes.part(qkv, 3, 0, head), sizes.scale());
            buffers.keys_turned.gather_turned(sizes.part(qkv, 3, 1, head));
            buffers.values.gather(sizes.part(qkv, 3, 2, head), 1.0);
            for (index, lse) in lse.chunks_mut(BLOCK).enumerate() {
                buffers.block(index * BLOCK, lse);
            }
            let mut out = out.lock().unwrap_or_else(PoisonError::into_inner);
            let out = &mut out[sequence * time * dim..][..time * dim];
            buffers
                .result
                .scatter(1.0, out, dim, head * sizes.width(), sizes.width());
        }
    });
}

/// What forward holds of one head.
struct Head {
    queries: Gathered,
    keys_turned: Gathered,
    values: Gathered,
    scores: Gathered,
    result: Gathered,
}

impl Head {
    fn new(sizes: Sizes) -> Self {
        let (rows, lanes) = (sizes.rows(), sizes.lanes());
        Self {
            queries: Gathered::zeros(rows, lanes),
            keys_turned: Gathered::zeros(lanes, rows),
            values: Gathered::zeros(rows, lanes),
            scores: Gathered::zeros(BLOCK, rows),
            result: Gathered::zeros(rows, lanes),
        }
    }

    /// The result of a block of query rows.
    fn block(&mut self, start: usize, lse: &mut [f32]) {
        let (lanes, end) = (self.queries.stride, start + BLOCK);
        let size = Size {
            rows: BLOCK,
            depth: lanes,
            columns: end,
        };
        product(
            self.scores.view_mut(0),
            size,
            self.queries.view(start),
            self.keys_turned.view(0),
        );
        causal_softmax(&mut self.scores, start, lse);
        let size = Size {
            rows: BLOCK,
            depth: end,
            columns: lanes,
        };
        product(
            self.result.view_mut(start),
            size,
            self.scores.view(0),
            self.values.view(0),
        );
    }
}

/// Makes what comes after place `own` of a row negative infinity, in the chunk of lanes that holds the place.
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

/// Turns a block of scores into probabilities, row `start` first; keys after a row's own get none.
#[multiversion(targets = "simd")]
fn causal_softmax(scores: &mut Gathered, start: usize, lse: &mut [f32]) {
    let rows = scores.numbers.chunks_exact_mut(scores.stride);
    for (own, (row, lse)) in (start..).zip(rows.zip(lse)) {
        let (row, later) = row.as_chunks_mut::<LANES>().0.split_at_mut(own / LANES + 1);
        hide_later(row, own);
        let largest = lanes::max(row.as_flattened());
        let mut sums = [0.0; LANES];
        for chunk in row.iter_mut() {
            for lane in 0..LANES {
                chunk[lane] = exp(chunk[lane] - largest);
                sums[lane] += chunk[lane];
            }
        }
        let total = lanes::fold(sums);
        let scale = 1.0 / total;
        row.as_flattened_mut()
            .iter_mut()
            .for_each(|number| *number *= scale);
        later.as_flattened_mut().fill(0.0);
        *lse = largest + total.ln();
    }
}
