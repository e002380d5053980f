//! Training sequences made of documents.

use std::ops::Range;
use std::sync::Arc;

use pipewright_stages::{Shape, Tensor};

use super::encode::NO_TARGET;
use super::order::SampleOrder;
use super::packing::Packed;
use super::range::{check_rows, check_span, empty};
use super::{Course, DataSource, Documents, Fingerprint, IGNORED, Longer, Packing};
use crate::error::{DataError, Result};
use crate::id::MicroBatch;

/// Micro-batches of [`Documents`]. Input and target are ids of `[rows, seq]`; the target is one token later,
/// or [`IGNORED`] where that token does not count or does not exist. Where lengths differ,
/// [`Mixture`](super::Mixture) makes micro-batches of about equal cost.
///
/// [`Packing`] says how documents are put into sequences.
#[derive(Debug)]
pub struct Sequences {
    documents: Arc<Documents>,
    span: Range<u64>,
    layout: Layout,
    rows: usize,
    seq: usize,
    order: SampleOrder,
    /// Whether rows end with the longest sequence of the micro-batch.
    is_trimmed: bool,
    /// The sequences without a target.
    without_target: u64,
}

/// Which tokens are in a sequence.
#[derive(Debug)]
enum Layout {
    Joined,
    Single,
    Apart(Packed, Longer),
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
        packing: Packing,
        (rows, seq): (usize, usize),
        micro_batches: u32,
        seed: u64,
    ) -> Result<Self> {
        let order = SampleOrder::shuffled("sequences", seed, rows, micro_batches);
        Self::of(documents, span, packing, (rows, seq), order)
    }

    /// For validation: the sequences of `span` in order. Rows after the last one have the target [`IGNORED`].
    ///
    /// # Errors
    /// As [`Sequences::shuffled`].
    pub fn in_order(
        documents: Arc<Documents>,
        span: Range<u64>,
        packing: Packing,
        size: (usize, usize),
    ) -> Result<Self> {
        Self::of(documents, span, packing, size, SampleOrder::InOrder)
    }

    /// Each document as a sequence of its own, also those without a target, in order. `seq` is not 0.
    pub(super) fn each(documents: Arc<Documents>, seq: usize) -> Self {
        let (span, layout, order) = (0..documents.count(), Layout::Single, SampleOrder::InOrder);
        Self { documents, span, layout, rows: 1, seq, order, is_trimmed: true, without_target: 0 }
    }

    fn of(
        documents: Arc<Documents>,
        span: Range<u64>,
        packing: Packing,
        (rows, seq): (usize, usize),
        order: SampleOrder,
    ) -> Result<Self> {
        let (name, count) = (documents.corpus.name(), documents.count());
        check_span(&name, &span, count)?;
        check_rows(&name, rows)?;
        if seq == 0 {
            return Err(empty(&name, "token of a row"));
        }
        let layout = match packing {
            Packing::Joined => Layout::Joined,
            Packing::Single => Layout::Single,
            Packing::Apart(longer) => {
                Layout::Apart(Packed::new(&documents, span.clone(), seq, longer)?, longer)
            }
        };
        let mut all =
            Self { documents, span, layout, rows, seq, order, is_trimmed: false, without_target: 0 };
        if all.count() == 0 {
            let purpose = match order {
                SampleOrder::Shuffled { .. } => "training",
                SampleOrder::InOrder => "validation",
            };
            let longer = match all.longer() {
                0 => String::new(),
                longer => format!(" ({longer} are left out, because they are longer than data.seq = {seq})"),
            };
            return Err(DataError::new(format!(
                "{name}: none of its {count} documents is for {purpose}, or they have no tokens{longer}; \
                 data.validation says how many are kept for validation"
            ))
            .into());
        }
        all.without_target = all.count_without_target()?;
        if all.without_target == all.count() {
            let within = match all.layout {
                Layout::Joined | Layout::Apart(..) => String::new(),
                Layout::Single => format!(", within data.seq = {seq} tokens"),
            };
            return Err(DataError::new(format!(
                "{name}: no token is a target: with data.loss_on = \"answers\", there has to be a message of \
                 the role \"assistant\"{within}"
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

    /// The same, but the rows of a micro-batch are only as long as its longest sequence, at most `seq`.
    #[must_use]
    pub fn trimmed(self) -> Self {
        Self { is_trimmed: true, ..self }
    }

    /// The number of sequences that have no target, so that nothing is learnt from them.
    pub fn without_target(&self) -> u64 {
        self.without_target
    }

    /// The number of sequences.
    pub fn count(&self) -> u64 {
        let tokens = self.documents.tokens(&self.span);
        match &self.layout {
            Layout::Joined => (tokens.end - tokens.start).saturating_sub(1).div_ceil(self.seq as u64),
            Layout::Single => self.span.end - self.span.start,
            Layout::Apart(packed, _) => packed.count(),
        }
    }

    /// The number of documents that are longer than a sequence. With [`Packing::Single`] their ends are not
    /// used; with [`Packing::Apart`] they are cut or left out.
    pub fn longer(&self) -> u64 {
        let is_cut = |document: &u64| {
            let tokens = self.documents.tokens(&(*document..document + 1));
            tokens.end - tokens.start > self.seq as u64 + 1
        };
        match &self.layout {
            Layout::Joined => 0,
            Layout::Single => self.span.clone().filter(is_cut).count() as u64,
            Layout::Apart(packed, _) => packed.longer,
        }
    }

    /// The documents or parts of documents in a sequence: the place of each in it, and which of all tokens it
    /// has, with the one after it.
    fn parts(&self, sequence: u64) -> impl Iterator<Item = (usize, Range<u64>)> {
        let longest = self.seq as u64 + 1;
        let one = match &self.layout {
            Layout::Joined => {
                let tokens = self.documents.tokens(&self.span);
                Some((tokens.start + sequence * self.seq as u64, tokens.end))
            }
            Layout::Single => {
                let document = self.span.start + sequence;
                let tokens = self.documents.tokens(&(document..document + 1));
                Some((tokens.start, tokens.end))
            }
            Layout::Apart(..) => None,
        };
        let one = one.map(|(start, end)| (0, start..end.min(start + longest)));
        let several = match &self.layout {
            Layout::Apart(packed, _) => Some(packed.sequence(sequence)),
            Layout::Joined | Layout::Single => None,
        };
        let several = several.into_iter().flatten();
        let several =
            several.map(|(place, piece)| (place, piece.start..piece.start + u64::from(piece.length) + 1));
        one.into_iter().chain(several)
    }

    /// The sequence at a row, or `None` after the last one.
    fn sequence(&self, step: u64, micro_batch: MicroBatch, row: usize) -> Option<u64> {
        let count = self.count();
        let (index, _) = self.order.sample(count, step, micro_batch, (row, self.rows))?;
        Some(index)
    }

    /// The sequences of a micro-batch, `None` after the last one, and the length of its rows.
    fn micro_batch_of(&self, step: u64, micro_batch: MicroBatch) -> (Vec<Option<u64>>, usize) {
        let sequences: Vec<_> = (0..self.rows).map(|row| self.sequence(step, micro_batch, row)).collect();
        let longest = sequences.iter().flatten().map(|&sequence| self.places(sequence)).max();
        let length = if self.is_trimmed { longest.unwrap_or(1).max(1) } else { self.seq };
        (sequences, length)
    }

    /// How many places of a sequence have a token.
    pub(super) fn places(&self, sequence: u64) -> usize {
        let ends = self.parts(sequence).map(|(place, part)| {
            let tokens = (part.end - part.start) as usize;
            place + self.own(tokens).min(self.seq)
        });
        ends.max().unwrap_or(0)
    }

    /// How many of the tokens of a part stand in the input. A document that is kept apart stands there
    /// without its last token.
    fn own(&self, tokens: usize) -> usize {
        match self.layout {
            Layout::Apart(..) => tokens - 1,
            Layout::Joined | Layout::Single => tokens,
        }
    }

    /// Writes a sequence into a row of input and target.
    pub(super) fn fill(&self, sequence: u64, input: &mut [u32], target: &mut [u32]) -> Result<()> {
        let mut tokens = Tensor::scratch_ids(&[self.seq + 1]);
        for (place, part) in self.parts(sequence) {
            let tokens = &mut tokens.ids_mut()[..(part.end - part.start) as usize];
            self.documents.corpus.read(part.start, tokens)?;
            for (input, token) in input[place..].iter_mut().zip(&tokens[..self.own(tokens.len())]) {
                *input = token & !NO_TARGET;
            }
            for (target, &token) in target[place..].iter_mut().zip(tokens.iter().skip(1)) {
                *target = if token & NO_TARGET == 0 { token } else { IGNORED };
            }
        }
        Ok(())
    }

    fn count_without_target(&self) -> Result<u64> {
        let has_one = matches!(self.layout, Layout::Joined | Layout::Apart(..));
        if has_one && !self.documents.is_masked {
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
        let (sequences, length) = self.micro_batch_of(step, micro_batch);
        let dims = [self.rows, length];
        let (mut input, mut target) = (Tensor::scratch_ids(&dims), Tensor::scratch_ids(&dims));
        // What follows the end of the last document is no target, so any token can stand there.
        input.ids_mut().fill(0);
        target.ids_mut().fill(IGNORED);
        let rows = input.ids_mut().chunks_exact_mut(length).zip(target.ids_mut().chunks_exact_mut(length));
        for (sequence, (input, target)) in sequences.into_iter().zip(rows) {
            if let Some(sequence) = sequence {
                self.fill(sequence, input, target)?;
            }
        }
        Ok((input, target))
    }

    /// What follows the last document of a row is one more.
    fn documents(&self, step: u64, micro_batch: MicroBatch) -> Result<Option<Tensor>> {
        let Layout::Apart(packed, _) = &self.layout else {
            return Ok(None);
        };
        let (sequences, length) = self.micro_batch_of(step, micro_batch);
        let mut starts = Tensor::scratch_ids(&[self.rows, length]);
        for (sequence, starts) in sequences.into_iter().zip(starts.ids_mut().chunks_exact_mut(length)) {
            let mut end = 0;
            for (place, piece) in sequence.into_iter().flat_map(|sequence| packed.sequence(sequence)) {
                end = place + piece.length as usize;
                starts[place..end].fill(place as u32);
            }
            starts[end..].fill(end as u32);
        }
        Ok(Some(starts))
    }

    fn describe(&self) -> String {
        self.documents.corpus.name()
    }

    fn shapes(&self) -> (Shape, Shape) {
        let shape = Shape::ids(&[self.rows, self.seq]);
        (shape, shape)
    }

    fn shapes_of(&self, step: u64, micro_batch: MicroBatch) -> (Shape, Shape) {
        let shape = Shape::ids(&[self.rows, self.micro_batch_of(step, micro_batch).1]);
        (shape, shape)
    }

    /// The fingerprint covers all documents, the tokenizer and how both become tokens.
    fn fingerprint(&self) -> Result<Fingerprint> {
        let (Range { start, end }, rows, seq) = (&self.span, self.rows, self.seq);
        let packed = match &self.layout {
            Layout::Joined => "packed",
            Layout::Single => "one by one",
            Layout::Apart(_, Longer::Cut | Longer::Refuse) => "apart",
            Layout::Apart(_, Longer::LeaveOut) => "apart, without longer ones",
        };
        let sequences = format!("sequences of {seq} tokens from documents {start}..{end}, {packed}");
        let (order, samples) = self.order.fingerprint(&sequences);
        Ok(Fingerprint {
            name: self.documents.corpus.name(),
            contents: self.documents.contents,
            batches: format!("{rows} {order}"),
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
