//! Micro-batches of samples from several sources, of about equal cost.

mod deal;
mod shares;

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use pipewright_stages::{Shape, Tensor};

use self::deal::{Deal, Dealt, Sample, triangle};
use self::shares::Shares;
use super::range::{check_rows, empty};
use super::{Course, DataSource, Fingerprint, IGNORED, Samples};
use crate::checksum::ChecksumBuilder;
use crate::error::{DataError, Result};
use crate::id::MicroBatch;

/// For how many steps it is kept which samples are in which micro-batch: ranks of a pipeline and the thread
/// that reads ahead are in different steps.
const KEPT: usize = 8;

/// A source of a [`Mixture`].
#[derive(Clone)]
pub struct MixtureSource {
    /// What it is called.
    pub name: String,
    /// How many samples it gives, beside the other sources. Shares need not add up to 1.
    pub share: f64,
    /// Micro-batches of one row. Sample `n` is the first micro-batch of step `n`.
    pub source: Arc<dyn DataSource>,
}

/// Micro-batches of sequences of tokens, from one source or from several.
///
/// **Which samples**: each sample comes from the source that is furthest behind its share. Which samples a
/// step takes is a pure function of the step, so a resumed run goes on exactly where it stopped.
///
/// **Which micro-batch**: the samples of a step are dealt to its micro-batches such that these cost about the
/// same, and have little padding. So micro-batches have different shapes: short samples come together, and
/// there are more of them. No micro-batch has more tokens than `rows` of the longest samples.
pub struct Mixture {
    sources: Vec<MixtureSource>,
    shares: Shares,
    order: Order,
    deal: Deal,
    /// Whether a source keeps documents apart.
    are_apart: bool,
    dealt: Mutex<VecDeque<(u64, Arc<[Dealt]>)>>,
}

/// Which samples a step has.
#[derive(Clone, Copy, Debug)]
enum Order {
    /// A new part of all samples.
    Training(Course),
    /// The same number from the first one on, at every step.
    Validation(u64),
}

impl Mixture {
    /// For training. A step takes `rows` samples for each of its `micro_batches`. `pairs_of_token`: how many
    /// pairs of tokens in attention cost as much as one token in all other layers; for a transformer of width
    /// `w`, about `6 w`.
    ///
    /// # Errors
    /// When a share is negative, when all are 0, when `rows` is 0, and when a source does not give rows of
    /// tokens, one at a time.
    pub fn new(
        sources: Vec<MixtureSource>,
        rows: usize,
        micro_batches: u32,
        pairs_of_token: u64,
    ) -> Result<Self> {
        let course = Course::new(rows as u64 * u64::from(micro_batches));
        Self::of(sources, Order::Training(course), rows, micro_batches, pairs_of_token)
    }

    /// For validation: the first `count` samples of a source, in `micro_batches` of at most `rows` of the
    /// longest samples. Here sample `n` is micro-batch `n` of the source's step 0. Otherwise as
    /// [`Mixture::new`].
    ///
    /// # Errors
    /// As [`Mixture::new`].
    pub fn in_order(
        source: Arc<dyn DataSource>,
        count: u64,
        rows: usize,
        micro_batches: u32,
        pairs_of_token: u64,
    ) -> Result<Self> {
        let count = count.min(rows as u64 * u64::from(micro_batches));
        let source = MixtureSource { name: source.describe(), share: 1.0, source };
        Self::of(vec![source], Order::Validation(count), rows, micro_batches, pairs_of_token)
    }

    fn of(
        sources: Vec<MixtureSource>,
        order: Order,
        rows: usize,
        micro_batches: u32,
        pairs_of_token: u64,
    ) -> Result<Self> {
        let (mut seq, mut are_apart) = (0, false);
        for MixtureSource { name, source, .. } in &sources {
            check_rows(name, rows)?;
            are_apart |= source.documents(0, MicroBatch(0))?.is_some();
            let (input, target) = source.shapes();
            match (input.dims(), input == target, input == Shape::ids(input.dims())) {
                ([1, longest], true, true) => seq = seq.max(*longest),
                _ => {
                    return Err(DataError::new(format!(
                        "{name} gives {input} with targets {target}: a mixture is of rows of tokens, one in \
                         each micro-batch of a source, with a target for each token"
                    ))
                    .into());
                }
            }
        }
        if seq == 0 {
            return Err(empty("a mixture", "source"));
        }
        let shares: Vec<f64> = sources.iter().map(|source| source.share).collect();
        Ok(Self {
            sources,
            shares: Shares::new(&shares)?,
            order,
            deal: Deal { micro_batches: micro_batches as usize, rows, seq, pairs_of_token },
            are_apart,
            dealt: Mutex::default(),
        })
    }

    /// The same, with another course, as when a training goes on with another batch.
    #[must_use]
    pub fn on_course(mut self, of: Course) -> Self {
        if let Order::Training(course) = &mut self.order {
            *course = of;
            self.dealt = Mutex::default();
        }
        self
    }

    /// How much work each micro-batch of a step is: in pairs of tokens, as `pairs_of_token` counts it.
    ///
    /// # Errors
    /// When a source fails.
    pub fn work(&self, step: u64) -> Result<Vec<u64>> {
        Ok(self.dealt(step)?.iter().map(|batch| batch.cost).collect())
    }

    /// How many tokens a step has, and how many places its micro-batches have for them.
    ///
    /// # Errors
    /// When a source fails.
    pub fn filled(&self, step: u64) -> Result<[u64; 2]> {
        let each = self.dealt(step)?;
        let tokens = each.iter().map(|batch| batch.tokens).sum::<usize>();
        let places = each.iter().map(|batch| batch.dims().iter().product::<usize>()).sum::<usize>();
        Ok([tokens as u64, places as u64])
    }

    /// How many samples a step has.
    fn count(&self) -> u64 {
        match self.order {
            Order::Training(_) => (self.deal.rows * self.deal.micro_batches) as u64,
            Order::Validation(count) => count,
        }
    }

    /// The source of a sample of a step, and where it is there.
    fn sample(&self, step: u64, place: usize) -> (&dyn DataSource, u64, MicroBatch) {
        match self.order {
            Order::Training(course) => {
                let (source, number) = self.shares.of(course.first(step) + place as u64);
                (&*self.sources[source].source, number, MicroBatch(0))
            }
            Order::Validation(_) => (&*self.sources[0].source, 0, MicroBatch(place as u32)),
        }
    }

    /// The micro-batches of a step.
    fn dealt(&self, step: u64) -> Result<Arc<[Dealt]>> {
        let step = if matches!(self.order, Order::Validation(_)) { 0 } else { step };
        let dealt = || self.dealt.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, batches)) = dealt().iter().find(|(of, _)| *of == step) {
            return Ok(Arc::clone(batches));
        }
        let samples = (0..self.count() as usize).map(|place| {
            let (source, at, micro_batch) = self.sample(step, place);
            let length = source.shapes_of(at, micro_batch).0.last();
            let starts = source.documents(at, micro_batch)?;
            let pairs = starts.map_or(triangle(length), |starts| pairs(starts.ids()));
            Ok(Sample { place, length, pairs })
        });
        let batches: Arc<[_]> = self.deal.micro_batches(samples.collect::<Result<_>>()?).into();
        // Nobody waits for the lock while a step is planned. Two threads may plan the same step.
        let mut dealt = dealt();
        if dealt.len() == KEPT {
            dealt.pop_front();
        }
        dealt.push_back((step, Arc::clone(&batches)));
        Ok(batches)
    }

    /// The shape of a micro-batch. After the last one, a row without a target follows.
    fn dims(&self, batch: Option<&Dealt>) -> [usize; 2] {
        batch.map_or([1, self.deal.length(&[])], Dealt::dims)
    }
}

impl Dealt {
    fn dims(&self) -> [usize; 2] {
        [self.places.len(), self.length]
    }
}

/// In how many pairs a token sees itself or an earlier one, by where the document of each token begins.
fn pairs(starts: &[u32]) -> u64 {
    let seen = starts.iter().enumerate().map(|(place, start)| place as u64 + 1 - u64::from(*start));
    seen.sum()
}

impl DataSource for Mixture {
    fn micro_batch(&self, step: u64, micro_batch: MicroBatch) -> Result<(Tensor, Tensor)> {
        let dealt = self.dealt(step)?;
        let batch = dealt.get(micro_batch.index());
        let dims = self.dims(batch);
        let (mut input, mut target) = (Tensor::scratch_ids(&dims), Tensor::scratch_ids(&dims));
        input.ids_mut().fill(0);
        target.ids_mut().fill(IGNORED);
        let rows = input.ids_mut().chunks_exact_mut(dims[1]);
        let rows = rows.zip(target.ids_mut().chunks_exact_mut(dims[1]));
        let places = batch.map_or(&[][..], |batch| &batch.places);
        for (place, (input, target)) in places.iter().zip(rows) {
            let (source, at, micro_batch) = self.sample(step, *place);
            let (tokens, targets) = source.micro_batch(at, micro_batch)?;
            input[..tokens.shape().last()].copy_from_slice(tokens.ids());
            target[..targets.shape().last()].copy_from_slice(targets.ids());
        }
        Ok((input, target))
    }

    /// What follows a sample in its row is one more document.
    fn documents(&self, step: u64, micro_batch: MicroBatch) -> Result<Option<Tensor>> {
        if !self.are_apart {
            return Ok(None);
        }
        let dealt = self.dealt(step)?;
        let batch = dealt.get(micro_batch.index());
        let dims = self.dims(batch);
        let mut all = Tensor::scratch_ids(&dims);
        all.ids_mut().fill(0);
        let places = batch.map_or(&[][..], |batch| &batch.places);
        for (place, row) in places.iter().zip(all.ids_mut().chunks_exact_mut(dims[1])) {
            let (source, at, micro_batch) = self.sample(step, *place);
            let own = source.documents(at, micro_batch)?;
            let length = match &own {
                Some(starts) => {
                    let length = starts.shape().last();
                    row[..length].copy_from_slice(starts.ids());
                    length
                }
                None => source.shapes_of(at, micro_batch).0.last(),
            };
            row[length..].fill(length as u32);
        }
        Ok(Some(all))
    }

    fn shapes(&self) -> (Shape, Shape) {
        let shape = Shape::ids(&[self.deal.rows, self.deal.seq]);
        (shape, shape)
    }

    fn shapes_of(&self, step: u64, micro_batch: MicroBatch) -> (Shape, Shape) {
        // A source that fails does so again when it is asked for the micro-batch, and says why.
        let Ok(dealt) = self.dealt(step) else {
            return self.shapes();
        };
        let shape = Shape::ids(&self.dims(dealt.get(micro_batch.index())));
        (shape, shape)
    }

    fn describe(&self) -> String {
        let names: Vec<_> = self.sources.iter().map(|one| one.source.describe()).collect();
        names.join(", ")
    }

    /// The fingerprint covers all sources and their shares.
    fn fingerprint(&self) -> Result<Fingerprint> {
        let each = self.sources.iter().map(|one| one.source.fingerprint());
        let mut each = each.collect::<Result<Vec<_>>>()?;
        let Deal { micro_batches, rows, seq, pairs_of_token } = self.deal;
        let of_source = |print: &Fingerprint| match &print.samples {
            Some(samples) => samples.order.clone(),
            None => print.batches.clone(),
        };
        let mut order = String::new();
        let mut contents = ChecksumBuilder::new();
        for (MixtureSource { share, .. }, print) in self.sources.iter().zip(&each) {
            contents.add(print.contents.to_string().as_bytes());
            order += &match each.len() {
                1 => of_source(print),
                _ => format!("{share} of {}; ", of_source(print)),
            };
        }
        let dealt = format!(
            "{micro_batches} micro-batches of at most {rows} x {seq} tokens, {pairs_of_token} pairs a token"
        );
        let (batches, samples) = match self.order {
            Order::Training(course) => {
                let samples = Samples { order: order.clone(), course };
                (format!("{dealt}, {order}, {course}"), Some(samples))
            }
            Order::Validation(count) => (format!("{dealt}, the first {count} of {order}"), None),
        };
        let is_sample = each.iter().any(|print| print.is_sample);
        let (contents, part, sources) = match each.as_mut_slice() {
            [one] => (one.contents, one.part.take(), Vec::new()),
            _ => {
                let parts = each.into_iter().map(|print| (print.name, print.part));
                (contents.checksum(), None, parts.collect())
            }
        };
        Ok(Fingerprint { name: self.describe(), contents, batches, is_sample, part, samples, sources })
    }

    fn sequences_of(&self, step: u64) -> Vec<(String, u64)> {
        if self.sources.len() == 1 {
            return Vec::new();
        }
        let mut taken = vec![0; self.sources.len()];
        if let Order::Training(course) = self.order {
            let first = course.first(step);
            (first..first + self.count()).for_each(|sample| taken[self.shares.of(sample).0] += 1);
        }
        self.sources.iter().map(|source| source.name.clone()).zip(taken).collect()
    }

    fn is_endless(&self) -> bool {
        self.sources.iter().all(|one| one.source.is_endless())
    }
}

impl fmt::Debug for MixtureSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MixtureSource")
            .field("name", &self.name)
            .field("share", &self.share)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Mixture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mixture")
            .field("sources", &self.sources)
            .field("deal", &self.deal)
            .finish_non_exhaustive()
    }
}
