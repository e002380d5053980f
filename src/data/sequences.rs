//! Training sequences made of documents.

use std::ops::Range;
use std::sync::Arc;

use pipewright_stages::{Shape, Tensor};

use super::encode::NO_TARGET;
use super::order::SampleOrder;
use super::range::{check_rows, check_span, empty};
use super::{Course, DataSource, Documents, Fingerprint, IGNORED};
use crate::error::{DataError, Result};
use crate::id::MicroBatch;

/// Micro-batches of [`Documents`]. Input and target are ids of `[rows, seq]`; the target is one token later,
/// or [`IGNORED`] where that token does not count or does not exist.
///
/// Packed, documents follow each other, and a sequence begins where the one before it ends. Otherwise each
/// sequence is the beginning of one document.
#[derive(Debug)]
pub struct Sequences {
    documents: Arc<Documents>,
    span: Range<u64>,
    packed: bool,
    rows: usize,
    seq: usize,
    order: SampleOrder,
    /// The sequences without a target.
    without_target: u64,
}

impl Sequences {
    /// For training: the documents of `span`, in a new order of sequences each epoch, every sequence once an
    /// epoch. `rows`: sequences in a micro-batch; `micro_batches`: how many of these a step takes.
    ///
    /// # Errors
    /// When the span is empty or not within the documents, when none of its tokens is a target, or when
    /// `rows` or `seq` is 0.
    pub fn shuffled(
        documents: Arc<Documents>,
        span: Range<u64>,
        packed: bool,
        (rows, seq): (usize, usize),
        micro_batches: u32,
        seed: u64,
    ) -> Result<Self> {
        let order = SampleOrder::shuffled("sequences", seed, rows, micro_batches);
        Self::of(documents, span, packed, (rows, seq), order)
    }

    /// For validation: the sequences of `span` in order. Rows after the last one have the target [`IGNORED`].
    ///
    /// # Errors
    /// As [`Sequences::shuffled`].
    pub fn in_order(
        documents: Arc<Documents>,
        span: Range<u64>,
        packed: bool,
        size: (usize, usize),
    ) -> Result<Self> {
        Self::of(documents, span, packed, size, SampleOrder::InOrder)
    }

    fn of(
        documents: Arc<Documents>,
        span: Range<u64>,
        packed: bool,
        (rows, seq): (usize, usize),
        order: SampleOrder,
    ) -> Result<Self> {
        let (name, count) = (documents.corpus.name(), documents.count());
        check_span(&name, &span, count)?;
        check_rows(&name, rows)?;
        if seq == 0 {
            return Err(empty(&name, "token of a row"));
        }
        let mut all = Self { documents, span, packed, rows, seq, order, without_target: 0 };
        if all.count() == 0 {
            let purpose = match order {
                SampleOrder::Shuffled { .. } => "training",
                SampleOrder::InOrder => "validation",
            };
            return Err(DataError::new(format!(
                "{name}: none of its {count} documents is for {purpose}, or they have no tokens; \
                 data.validation says how many are kept for validation"
            ))
            .into());
        }
        all.without_target = all.count_without_target()?;
        if all.without_target == all.count() {
            return Err(DataError::new(format!(
                "{name}: no token is a target: with data.loss_on = \"answers\", a message of the role \
                 \"assistant\" has to begin within data.seq = {seq} tokens"
            ))
            .into());
        }
        Ok(all)
    }

    /// The same, with another course.
    #[must_use]
    pub fn on_course(mut self, of: Course) -> Self {
        self.order = self.order.on_course(of);
        self
    }

    /// The number of sequences that have no target, so that nothing is learnt from them.
    pub fn without_target(&self) -> u64 {
        self.without_target
    }

    /// The number of sequences.
    pub fn count(&self) -> u64 {
        let tokens = self.documents.tokens(&self.span);
        match self.packed {
            true => (tokens.end - tokens.start).saturating_sub(1).div_ceil(self.seq as u64),
            false => self.span.end - self.span.start,
        }
    }

    /// The number of documents that are longer than a sequence, so that their ends are not used.
    pub fn cut(&self) -> u64 {
        let is_cut = |document: &u64| {
            let tokens = self.documents.tokens(&(*document..document + 1));
            tokens.end - tokens.start > self.seq as u64 + 1
        };
        match self.packed {
            true => 0,
            false => self.span.clone().filter(is_cut).count() as u64,
        }
    }

    /// The tokens of a sequence, with the one after it.
    fn tokens(&self, sequence: u64) -> Range<u64> {
        let longest = self.seq as u64 + 1;
        let (start, end) = match self.packed {
            true => {
                let tokens = self.documents.tokens(&self.span);
                (tokens.start + sequence * self.seq as u64, tokens.end)
            }
            false => {
                let document = self.span.start + sequence;
                let tokens = self.documents.tokens(&(document..document + 1));
                (tokens.start, tokens.end)
            }
        };
        start..end.min(start + longest)
    }

    /// The sequence at a row, or `None` after the last one.
    fn sequence(&self, step: u64, micro_batch: MicroBatch, row: usize) -> Option<u64> {
        let count = self.count();
        let (index, _) = self.order.sample(count, step, micro_batch, (row, self.rows))?;
        Some(index)
    }

    /// Writes a sequence into a row of input and target.
    fn fill(&self, sequence: u64, input: &mut [u32], target: &mut [u32]) -> Result<()> {
        let place = self.tokens(sequence);
        let mut tokens = Tensor::scratch_ids(&[self.seq + 1]);
        let tokens = &mut tokens.ids_mut()[..(place.end - place.start) as usize];
        self.documents.corpus.read(place.start, tokens)?;
        for (input, token) in input.iter_mut().zip(tokens.iter()) {
            *input = token & !NO_TARGET;
        }
        for (target, &token) in target.iter_mut().zip(tokens.iter().skip(1)) {
            *target = if token & NO_TARGET == 0 { token } else { IGNORED };
        }
        Ok(())
    }

    fn count_without_target(&self) -> Result<u64> {
        if self.packed && !self.documents.is_masked {
            return Ok(0);
        }
        let (mut input, mut target) = (vec![0; self.seq], vec![IGNORED; self.seq]);
        let mut count = 0;
        for sequence in 0..self.count() {
            target.fill(IGNORED);
            self.fill(sequence, &mut input, &mut target)?;
            count += u64::from(target.iter().all(|&target| target == IGNORED));
        }
        Ok(count)
    }
}

impl DataSource for Sequences {
    fn micro_batch(&self, step: u64, micro_batch: MicroBatch) -> Result<(Tensor, Tensor)> {
        let dims = [self.rows, self.seq];
        let (mut input, mut target) = (Tensor::scratch_ids(&dims), Tensor::scratch_ids(&dims));
        // What follows the end of the last document is no target, so any token can stand there.
        input.ids_mut().fill(0);
        target.ids_mut().fill(IGNORED);
        let rows = input.ids_mut().chunks_exact_mut(self.seq);
        for (row, (input, target)) in rows.zip(target.ids_mut().chunks_exact_mut(self.seq)).enumerate() {
            if let Some(sequence) = self.sequence(step, micro_batch, row) {
                self.fill(sequence, input, target)?;
            }
        }
        Ok((input, target))
    }

    fn describe(&self) -> String {
        self.documents.corpus.name()
    }

    fn shapes(&self) -> (Shape, Shape) {
        let shape = Shape::ids(&[self.rows, self.seq]);
        (shape, shape)
    }

    /// The fingerprint covers all documents, the tokenizer and how both become tokens.
    fn fingerprint(&self) -> Result<Fingerprint> {
        let (Range { start, end }, rows, seq) = (&self.span, self.rows, self.seq);
        let packed = if self.packed { "packed" } else { "one by one" };
        let sequences = format!("sequences of {seq} tokens from documents {start}..{end}, {packed}");
        let (order, samples) = self.order.fingerprint(&sequences);
        Ok(Fingerprint {
            name: self.documents.corpus.name(),
            contents: self.documents.contents,
            batches: format!("{rows} {order}"),
            is_sample: false,
            part: Some(self.span.clone()),
            samples,
        })
    }

    fn is_endless(&self) -> bool {
        true
    }
}
