//! What a model gives answers before it is trained.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pipewright_stages::loss::Score;
use pipewright_stages::{Device, Place, Stage};

use super::running::Pipeline;
use crate::data::{Question, Reference};
use crate::error::{CallError, Result};

/// The least and the most pairs that are evaluated at once.
const AT_ONCE: (u64, u64) = (8, 1024);

/// About the longest time for pairs that are evaluated at once. A run that is asked to end waits for them.
const SOON: Duration = Duration::from_secs(5);

/// How a reference was found.
#[derive(Debug)]
pub enum ReferenceFound {
    /// It was known or kept.
    There,
    /// It was found out.
    Now {
        /// Whether it could be kept. It is known nevertheless.
        kept: Result<()>,
    },
    /// It was to end before all pairs were evaluated. The reference is not known.
    Stopped {
        /// How many pairs were evaluated.
        pairs: u64,
        /// Whether what is known of them could be kept.
        kept: Result<()>,
    },
}

impl<S: Stage> Pipeline<S> {
    /// Finds out what the model, as it is now, gives each answer of a [`Reference`], unless that is known or
    /// kept. It takes one evaluation of all pairs. Every few seconds, what is known is kept, and `ends` is
    /// asked whether this should end.
    ///
    /// The loss of the pipeline has to be a [`Preference`](pipewright_stages::loss::Preference). All
    /// processes make the same call; it is enough if one of them has the file.
    ///
    /// # Errors
    /// [`CallError`] when the loss tells no log-probabilities. Otherwise as for [`Pipeline::evaluate`].
    pub fn find_reference(
        &mut self,
        reference: &Reference,
        ends: impl Fn() -> bool,
    ) -> Result<ReferenceFound> {
        if !self.any(!reference.is_known())? {
            return Ok(ReferenceFound::There);
        }
        let weights = format!("{} in {}", self.weights_hash()?, self.numbers());
        let mut given =
            self.any_of("looking for a reference", Ok(reference.kept(&weights)))?.unwrap_or_default();
        let (all, mut found) = (reference.pairs(), ReferenceFound::There);
        let mut at_once = AT_ONCE.0;
        loop {
            let since = Instant::now();
            let first = given.len() as u64 / 2;
            let few = |number| {
                u32::try_from(number).map_err(|_| CallError::new(format!("{all} pairs are too many")))
            };
            let count = few((all - first).min(at_once))?;
            if count == 0 {
                reference.know(given);
                return Ok(found);
            }
            let question = Arc::new(Question::of(reference, few(first)?)?);
            for score in self.scores(question, count)? {
                given.extend(of_pair(&score)?);
            }
            let kept = reference.keep(&weights, &given);
            let pairs = first + u64::from(count);
            if pairs < all && self.any(ends())? {
                return Ok(ReferenceFound::Stopped { pairs, kept });
            }
            found = ReferenceFound::Now { kept };
            let next = match since.elapsed() {
                took if took > SOON => (at_once / 2).max(AT_ONCE.0),
                took if took < SOON / 2 => (at_once * 2).min(AT_ONCE.1),
                _ => at_once,
            };
            at_once = self.of_first("choosing how many pairs are next", Ok(next))?;
        }
    }

    /// In which numbers the ranks compute, and on which kinds of devices.
    fn numbers(&self) -> String {
        let mesh = self.ranks.mesh();
        let of = |place: Place| match place.device {
            Device::Cpu => place.dtype.to_string(),
            Device::Cuda(_) => format!("{} on a GPU", place.dtype),
        };
        let all: BTreeSet<_> = mesh.world().map(|rank| of(mesh.place(rank))).collect();
        all.into_iter().collect::<Vec<_>>().join(" and ")
    }

    /// Tells a reference to processes that do not know it.
    ///
    /// # Errors
    /// As for [`Pipeline::any`].
    pub(crate) fn share_reference(&mut self, reference: &Reference) -> Result<()> {
        let known = self.any_of("sharing a reference", Ok(reference.all().map(<[f64]>::to_vec)))?;
        if let Some(known) = known {
            reference.know(known);
        }
        Ok(())
    }
}

/// The log-probabilities of both answers of a pair. They are 0 if it has no labels.
fn of_pair(score: &Score) -> Result<[f64; 2]> {
    let of = |name| score.metrics.iter().find(|one| one.name() == name);
    match (of("chosen"), of("rejected")) {
        (Some(chosen), Some(rejected)) => Ok([chosen, rejected].map(|one| one.value().unwrap_or(0.0))),
        _ => Err(CallError::new(
            "the loss tells no log-probabilities of answers, so there is no reference: take `Preference`",
        )
        .into()),
    }
}
