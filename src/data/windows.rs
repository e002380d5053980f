//! Windows of a token sequence. The input is a window; the target is the same window one token later.

use std::ops::Range;
use std::sync::Arc;

use pipewright_stages::rng::{key, philox};
use pipewright_stages::{Shape, Tensor};

use super::range::{check_rows, check_span, empty};
use super::{Corpus, DataSource, Fingerprint};
use crate::error::{DataError, Result};
use crate::id::MicroBatch;

/// Micro-batches of windows of a [`Corpus`]. Input and target are ids of `[rows, seq]`; the target is one
/// token later.
#[derive(Debug)]
pub struct Windows {
    corpus: Arc<Corpus>,
    span: Range<u64>,
    rows: usize,
    seq: usize,
    order: WindowOrder,
}

/// Which window is at a position.
#[derive(Clone, Copy, Debug)]
enum WindowOrder {
    /// Drawn at random, from this seed.
    Drawn(u64),
    /// This many windows, evenly spaced from the first token to the last.
    Even(u64),
}

impl Windows {
    /// For training: windows at random offsets within `span`. The seed, step, micro-batch and row determine
    /// each offset.
    ///
    /// # Errors
    /// When the span is not within the corpus or shorter than one window, `seq` + 1 tokens. Also when `rows`
    /// or `seq` is 0.
    pub fn drawn(corpus: Arc<Corpus>, span: Range<u64>, rows: usize, seq: usize, seed: u64) -> Result<Self> {
        Self::of(corpus, span, rows, seq, WindowOrder::Drawn(seed), "training")
    }

    /// For validation: evenly spaced windows of `span` for `micro_batches` micro-batches, the same at every
    /// step.
    ///
    /// # Errors
    /// When the span is not within the corpus or shorter than one window, `seq` + 1 tokens. Also when `rows`
    /// or `seq` is 0.
    pub fn even(
        corpus: Arc<Corpus>,
        span: Range<u64>,
        rows: usize,
        seq: usize,
        micro_batches: u32,
    ) -> Result<Self> {
        let windows = u64::from(micro_batches.max(1)) * rows as u64;
        Self::of(corpus, span, rows, seq, WindowOrder::Even(windows), "validation")
    }

    fn of(
        corpus: Arc<Corpus>,
        span: Range<u64>,
        rows: usize,
        seq: usize,
        order: WindowOrder,
        purpose: &'static str,
    ) -> Result<Self> {
        let count = corpus.count();
        check_span(&corpus.name(), &span, count)?;
        check_rows(&corpus.name(), rows)?;
        if seq == 0 {
            return Err(empty(&corpus.name(), "token of a row"));
        }
        let (held, needed) = (span.end - span.start, seq as u64 + 1);
        if held < needed {
            return Err(DataError::new(format!(
                "{} is too short: of its {count} tokens {held} are for {purpose}, and one window needs \
                 {needed} (the sequence length {} and the token after it); take shorter sequences \
                 (data.seq), more text, or another share for validation (data.validation)",
                corpus.name(),
                needed - 1
            ))
            .into());
        }
        Ok(Self { corpus, span, rows, seq, order })
    }

    /// The offset of a row's window.
    fn offset(&self, step: u64, micro_batch: MicroBatch, row: usize) -> u64 {
        let last = self.span.end - self.span.start - (self.seq as u64 + 1);
        let offset = match self.order {
            WindowOrder::Drawn(seed) => {
                // The word "replica" stays here, because another key would draw other windows.
                let key = key(seed, "windows of replica 0");
                let counter = [step as u32, (step >> 32) as u32, micro_batch.0, row as u32];
                let words = philox(key, counter);
                let draw = (u128::from(words[0]) << 32) | u128::from(words[1]);
                ((draw * u128::from(last + 1)) >> 64) as u64
            }
            WindowOrder::Even(windows) => {
                let index = (micro_batch.index() as u64 * self.rows as u64 + row as u64) % windows;
                (u128::from(last) * u128::from(index) / u128::from((windows - 1).max(1))) as u64
            }
        };
        self.span.start + offset
    }
}

impl DataSource for Windows {
    fn micro_batch(&self, step: u64, micro_batch: MicroBatch) -> Result<(Tensor, Tensor)> {
        let dims = [self.rows, self.seq];
        let (mut input, mut target) = (Tensor::scratch_ids(&dims), Tensor::scratch_ids(&dims));
        let mut window = Tensor::scratch_ids(&[self.seq + 1]);
        let rows = input.ids_mut().chunks_exact_mut(self.seq);
        for (row, (input, target)) in rows.zip(target.ids_mut().chunks_exact_mut(self.seq)).enumerate() {
            let window = window.ids_mut();
            self.corpus.read(self.offset(step, micro_batch, row), window)?;
            input.copy_from_slice(&window[..self.seq]);
            target.copy_from_slice(&window[1..]);
        }
        Ok((input, target))
    }

    fn describe(&self) -> String {
        self.corpus.name()
    }

    fn shapes(&self) -> (Shape, Shape) {
        let shape = Shape::ids(&[self.rows, self.seq]);
        (shape, shape)
    }

    /// The fingerprint covers the whole corpus, which is read once.
    fn fingerprint(&self) -> Result<Fingerprint> {
        let (Range { start, end }, rows, seq) = (&self.span, self.rows, self.seq);
        let order = match self.order {
            WindowOrder::Drawn(seed) => format!("drawn with seed {seed}"),
            WindowOrder::Even(windows) => format!("{windows} laid out evenly"),
        };
        Ok(Fingerprint {
            name: self.corpus.name(),
            contents: self.corpus.checksum()?,
            batches: format!("{rows} windows of {seq} tokens from {start}..{end}, {order}"),
            is_sample: false,
            part: Some(self.span.clone()),
            samples: None,
            sources: Vec::new(),
        })
    }

    fn is_endless(&self) -> bool {
        true
    }
}
