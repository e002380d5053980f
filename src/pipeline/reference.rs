//! What a model gives answers before it is trained.

use std::collections::BTreeSet;
use std::sync::Arc;

use pipewright_stages::Stage;
use pipewright_stages::loss::Score;

use super::running::Pipeline;
use crate::data::{Question, Reference};
use crate::error::{CallError, Result};

impl<S: Stage> Pipeline<S> {
    /// Finds out what the model, as it is now, gives each answer of a [`Reference`], unless that is known or
    /// kept. It takes one evaluation of all pairs. Returns `None` if none was made, and otherwise whether the
    /// numbers could be kept: if not, they are known nevertheless.
    ///
    /// The loss of the pipeline has to be a [`Preference`](pipewright_stages::loss::Preference). All
    /// processes make the same call; it is enough if one of them has the file.
    ///
    /// # Errors
    /// [`CallError`] when the loss tells no log-probabilities. Otherwise as for [`Pipeline::evaluate`].
    pub fn find_reference(&mut self, reference: &Reference) -> Result<Option<Result<()>>> {
        if !self.any(!reference.is_known())? {
            return Ok(None);
        }
        let weights = format!("{} in {}", self.weights_hash()?, self.numbers());
        if let Some(kept) = self.any_of("looking for a reference", reference.kept(&weights))? {
            reference.know(kept);
            return Ok(None);
        }
        let pairs = reference.pairs();
        let few = u32::try_from(pairs).map_err(|_| CallError::new(format!("{pairs} pairs are too many")))?;
        let scores = self.scores(Arc::new(Question::of(reference)?), few)?;
        let given = scores.iter().map(of_pair).collect::<Option<Vec<_>>>().ok_or_else(|| {
            CallError::new(
                "the loss tells no log-probabilities of answers, so there is no reference: take `Preference`",
            )
        })?;
        reference.know(given.concat());
        Ok(Some(reference.keep(&weights)))
    }

    /// In which numbers the ranks compute.
    fn numbers(&self) -> String {
        let mesh = self.ranks.mesh();
        let all: BTreeSet<_> = mesh.world().map(|rank| mesh.place(rank).dtype.to_string()).collect();
        all.into_iter().collect::<Vec<_>>().join(" and ")
    }

    /// Tells a reference to processes that do not know it.
    ///
    /// # Errors
    /// As for [`Pipeline::any`].
    pub(crate) fn share_reference(&mut self, reference: &Reference) -> Result<()> {
        let known = self.any_of("sharing a reference", reference.all().map(<[f64]>::to_vec))?;
        if let Some(known) = known {
            reference.know(known);
        }
        Ok(())
    }
}

/// The log-probabilities of both answers of a pair. They are 0 if it has no labels.
fn of_pair(score: &Score) -> Option<[f64; 2]> {
    let of = |name| score.metrics.iter().find(|one| one.name() == name);
    Some([of("chosen")?, of("rejected")?].map(|one| one.value().unwrap_or(0.0)))
}
