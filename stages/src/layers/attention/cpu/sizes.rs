//! The sizes of attention.

use std::iter;
use std::ops::Range;

use super::gathered::{BLOCK, Part};
use crate::cpu::lanes::LANES;
use crate::cpu::parts::{EXP, PRODUCTS};

/// The sizes of attention. A row of the input has the vectors of all heads side by side: queries, keys,
/// values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// The number of rows of one sequence.
    pub(crate) time: usize,
    /// The number of query heads.
    pub(crate) query: usize,
    /// The number of key heads, and of value heads.
    pub(crate) key_value: usize,
    /// The width of a head.
    pub(crate) width: usize,
    /// How many keys a query sees at most: those before its own, and its own.
    pub(crate) window: usize,
}

impl Sizes {
    /// The factor that scores are multiplied by.
    pub(crate) fn scale(self) -> f32 {
        1.0 / (self.width as f32).sqrt()
    }

    /// How many query heads share a key and value head.
    pub(crate) fn group(self) -> usize {
        self.query / self.key_value
    }

    /// The vectors in a row of the input.
    pub(crate) fn vectors(self) -> usize {
        self.query + 2 * self.key_value
    }

    /// Which vector of a row is the key of this key and value head, and which is the value.
    pub(crate) fn key_and_value(self, head: usize) -> [usize; 2] {
        [self.query + head, self.query + self.key_value + head]
    }

    /// The first key that a query sees.
    pub(crate) fn first_key(self, query: usize) -> usize {
        (query + 1).saturating_sub(self.window)
    }

    /// The sizes of a document of this many rows.
    pub(crate) fn of_document(self, time: usize) -> Self {
        Self { time, ..self }
    }

    /// The rows of a sequence or document that begins at row `first`, out of rows of this many vectors.
    pub(crate) fn rows<N>(self, numbers: &[N], vectors: usize, first: usize) -> &[N] {
        let row = vectors * self.width;
        &numbers[first * row..][..self.time * row]
    }

    /// As [`Sizes::rows`], for writing.
    pub(crate) fn rows_mut<N>(self, numbers: &mut [N], vectors: usize, first: usize) -> &mut [N] {
        let row = vectors * self.width;
        &mut numbers[first * row..][..self.time * row]
    }

    /// Divides query heads, which are numbered through all sequences, into runs of heads with the same keys
    /// and values.
    pub(crate) fn runs(self, heads: Range<usize>) -> impl Iterator<Item = Range<usize>> {
        let group = self.group();
        let mut next = heads.start;
        iter::from_fn(move || {
            let start = next;
            next = heads.end.min((start + 1).next_multiple_of(group));
            (start < next).then_some(start..next)
        })
    }

    /// Where a vector lies in rows of this many vectors: the length of a row, the first column, the width.
    pub(crate) fn columns(self, vectors: usize, vector: usize) -> [usize; 3] {
        [vectors * self.width, vector * self.width, self.width]
    }

    /// The estimated work for one query head of one sequence, in the units of [`crate::cpu::parts::cut`]. No
    /// document is longer than `longest`.
    pub(crate) fn weight(self, longest: usize) -> usize {
        self.time * longest.min(self.window) * (self.width / PRODUCTS + EXP)
    }

    /// A vector of each of the rows, which have this many vectors.
    pub(crate) fn part(self, numbers: &[f32], vectors: usize, vector: usize) -> Part<'_> {
        let [stride, offset, width] = self.columns(vectors, vector);
        Part { numbers, stride, offset, width }
    }
}

/// The keys that a block of queries sees, in whole blocks. Blocks outside of the window are not among them.
pub(crate) fn keys_of(sizes: Sizes, start: usize) -> Range<usize> {
    sizes.first_key(start) / BLOCK * BLOCK..start + BLOCK
}

/// The rows of a sequence and the width of a head, rounded up to whole blocks and registers.
pub(crate) fn padded(sizes: Sizes) -> [usize; 2] {
    [sizes.time.next_multiple_of(BLOCK), sizes.width.next_multiple_of(LANES)]
}
