//! Micro-batches of pairs of answers.

use std::ops::Range;
use std::sync::Arc;

use pipewright_stages::loss::Preference;
use pipewright_stages::{Shape, Tensor};

use super::reference::Reference;
use crate::data::order::SampleOrder;
use crate::data::range::{check_rows, check_span};
use crate::data::{Course, DataSource, Documents, Fingerprint, IGNORED, Sequences};
use crate::error::{DataError, Result};
use crate::id::MicroBatch;

/// Rows are as long as a multiple of this many tokens, so that there are few shapes.
const MULTIPLE: usize = 16;

/// Micro-batches of pairs of answers, for [`Preference`] and
/// [`PairwiseReward`](pipewright_stages::loss::PairwiseReward). A row is an answer with what stands before
/// it. The preferred answer of a pair and the rejected one follow each other.
///
/// The input is `ids[rows, time]`. The target is `ids[rows, time + 2]`: the token after each one, or
/// [`IGNORED`] where that is no part of an answer; then what the [`Reference`] gave the answer, as
/// [`Preference::reference`] writes it.
///
/// Rows are as long as the longest one of the micro-batch, at most `seq` tokens. An answer that is longer,
/// with what stands before it, is cut there. A pair is left out if nothing of one of its answers is left, or
/// if both are equal.
#[derive(Debug)]
pub struct Pairs {
    /// Document `n` as sequence `n`.
    answers: Sequences,
    documents: Arc<Documents>,
    span: Range<u64>,
    /// The pairs of the span that are used.
    used: Vec<u64>,
    rows: usize,
    seq: usize,
    order: SampleOrder,
    reference: Arc<Reference>,
}

impl Pairs {
    /// For training: the pairs of `span`, in a new order each epoch. `rows`: how many answers a micro-batch
    /// has, two for each pair; `micro_batches`: how many of these a step takes.
    ///
    /// # Errors
    /// When the span is not within the pairs, when none of its pairs can be used, or when `rows` is 0 or odd.
    pub fn shuffled(
        reference: Arc<Reference>,
        span: Range<u64>,
        rows: usize,
        micro_batches: u32,
        seed: u64,
    ) -> Result<Self> {
        let order = SampleOrder::shuffled("pairs", seed, rows / 2, micro_batches);
        Self::of(reference, span, rows, order)
    }

    /// For validation: the pairs of `span` in order. Rows after the last one have the target [`IGNORED`].
    ///
    /// # Errors
    /// As [`Pairs::shuffled`].
    pub fn in_order(reference: Arc<Reference>, span: Range<u64>, rows: usize) -> Result<Self> {
        Self::of(reference, span, rows, SampleOrder::InOrder)
    }

    fn of(reference: Arc<Reference>, span: Range<u64>, rows: usize, order: SampleOrder) -> Result<Self> {
        let (name, pairs, seq) = (reference.documents().corpus.name(), reference.pairs(), reference.seq());
        check_span(&name, &span, pairs)?;
        check_rows(&name, rows)?;
        if !rows.is_multiple_of(2) {
            return Err(DataError::new(format!(
                "a micro-batch of {name} has {rows} rows, and the two answers of a pair have to be in one \
                 micro-batch: choose an even number (pipeline.micro_batch_size)"
            ))
            .into());
        }
        let mut all = Self::all(reference);
        let mut used = Vec::new();
        for pair in span.clone() {
            if differ(&all.answers, pair)? {
                used.push(pair);
            }
        }
        if used.is_empty() {
            return Err(DataError::new(format!(
                "{name}: none of its {pairs} pairs is used: of the pairs {}..{}, each has two equal answers, \
                 or an answer that begins after data.seq = {seq} tokens: take a larger one, or shorter \
                 prompts",
                span.start, span.end
            ))
            .into());
        }
        (all.span, all.used, all.rows, all.order) = (span, used, rows, order);
        Ok(all)
    }

    /// All pairs in order, also those that cannot be used, one in each micro-batch.
    pub(super) fn all(reference: Arc<Reference>) -> Self {
        let (documents, seq) = (Arc::clone(reference.documents()), reference.seq());
        let span = 0..reference.pairs();
        Self {
            answers: Sequences::each(Arc::clone(&documents), seq),
            documents,
            used: span.clone().collect(),
            span,
            rows: 2,
            seq,
            order: SampleOrder::InOrder,
            reference,
        }
    }

    /// The same, with another course.
    #[must_use]
    pub fn on_course(self, of: Course) -> Self {
        Self { order: self.order.on_course(of), ..self }
    }

    /// The number of pairs that are used.
    pub fn count(&self) -> u64 {
        self.used.len() as u64
    }

    /// The number of pairs that are left out.
    pub fn left_out(&self) -> u64 {
        self.span.end - self.span.start - self.count()
    }

    /// The documents of a micro-batch, in the order of its rows.
    fn documents_of(&self, step: u64, micro_batch: MicroBatch) -> impl Iterator<Item = u64> {
        let pairs = self.rows / 2;
        let used = (0..pairs).filter_map(move |pair| {
            let (place, _) = self.order.sample(self.count(), step, micro_batch, (pair, pairs))?;
            Some(self.used[place as usize])
        });
        used.flat_map(|pair| [2 * pair, 2 * pair + 1])
    }

    /// How long the rows of a micro-batch are.
    fn length(&self, step: u64, micro_batch: MicroBatch) -> usize {
        if self.reference.has_whole_rows() {
            return self.seq;
        }
        let lengths = self.documents_of(step, micro_batch).map(|document| self.answers.places(document));
        lengths.max().unwrap_or(1).next_multiple_of(MULTIPLE).min(self.seq)
    }

    fn shapes_with(&self, length: usize) -> (Shape, Shape) {
        let reference = Preference::reference(0.0).len();
        (Shape::ids(&[self.rows, length]), Shape::ids(&[self.rows, length + reference]))
    }
}

/// Whether something of both answers of a pair is left, and they differ.
fn differ(answers: &Sequences, pair: u64) -> Result<bool> {
    let [(chosen, first), (rejected, second)] = [
        answers.micro_batch(0, MicroBatch(2 * pair as u32))?,
        answers.micro_batch(0, MicroBatch(2 * pair as u32 + 1))?,
    ];
    let has_answer = |targets: &Tensor| targets.ids().iter().any(|target| *target != IGNORED);
    let are_equal = chosen.ids() == rejected.ids() && first.ids() == second.ids();
    Ok(has_answer(&first) && has_answer(&second) && !are_equal)
}

impl DataSource for Pairs {
    /// # Errors
    /// Also before the [`Reference`] is known.
    fn micro_batch(&self, step: u64, micro_batch: MicroBatch) -> Result<(Tensor, Tensor)> {
        let (input, target) = self.shapes_with(self.length(step, micro_batch));
        let (length, width) = (input.last(), target.last());
        let (mut input, mut target) = (Tensor::scratch_ids(input.dims()), Tensor::scratch_ids(target.dims()));
        // What follows the end of an answer is no target, so any token can stand there.
        input.ids_mut().fill(0);
        for row in target.ids_mut().chunks_exact_mut(width) {
            row[..length].fill(IGNORED);
            row[length..].fill(0);
        }
        let rows = input.ids_mut().chunks_exact_mut(length).zip(target.ids_mut().chunks_exact_mut(width));
        for (document, (input, target)) in self.documents_of(step, micro_batch).zip(rows) {
            self.answers.fill(document, input, &mut target[..length])?;
            target[length..].copy_from_slice(&Preference::reference(self.reference.given(document)?));
        }
        Ok((input, target))
    }

    fn shapes(&self) -> (Shape, Shape) {
        self.shapes_with(self.seq)
    }

    fn shapes_of(&self, step: u64, micro_batch: MicroBatch) -> (Shape, Shape) {
        self.shapes_with(self.length(step, micro_batch))
    }

    fn describe(&self) -> String {
        self.documents.corpus.name()
    }

    /// The fingerprint covers all pairs, the tokenizer and how both become tokens, but not the reference.
    fn fingerprint(&self) -> Result<Fingerprint> {
        let (Range { start, end }, rows, seq) = (&self.span, self.rows, self.seq);
        let (order, samples) = self.order.fingerprint(&format!("pairs {start}..{end} within {seq} tokens"));
        Ok(Fingerprint {
            name: self.describe(),
            contents: self.documents.contents,
            batches: format!("{rows} rows of {order}"),
            is_sample: false,
            part: Some(self.span.clone()),
            samples,
            sources: Vec::new(),
        })
    }

    fn is_endless(&self) -> bool {
        true
    }
}
