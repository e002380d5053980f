//! What a step reports when a number is not finite.

use std::sync::Arc;

use pipewright_stages::Stage;

use super::running::Pipeline;
use crate::actor::Search;
use crate::error::{Error, Finding, NotFinite, Result};
use crate::id::MicroBatch;
use crate::worker::{Fault, Forwards, Outcome, ParameterInfo, Totals, Trained};

impl<S: Stage> Pipeline<S> {
    /// The step's totals, on which the ranks have agreed. If a number is not finite, an error with its place.
    pub(super) fn totals(&mut self, step: u64, answers: &[Trained]) -> Result<Totals> {
        match answers.first().expect("a pipeline has at least one rank").outcome {
            Outcome::Updated(totals) => Ok(totals),
            Outcome::NotFinite(Fault::Loss(micro_batch)) if !self.is_stale() => {
                let found = self.search(step, micro_batch)?;
                let what = Box::new(NotFinite::Loss { micro_batch, found });
                Err(Error::NotFinite { step, what })
            }
            Outcome::NotFinite(fault) => Err(self.discarded(step, fault)),
        }
    }

    /// The error for a step that was discarded, without a search for the layer.
    pub(super) fn discarded(&self, step: u64, fault: Fault) -> Error {
        let what = match fault {
            Fault::Loss(micro_batch) => NotFinite::StaleLoss { micro_batch },
            Fault::Gradient(stage, index) => {
                let at = |info: &&ParameterInfo| (info.site.stage, info.site.index) == (stage, index);
                let info = self.parameters.iter().find(at);
                let parameter = info.map_or("?", |info| &info.name).to_owned();
                NotFinite::Gradient { parameter, stage }
            }
        };
        let what = Box::new(what);
        Error::NotFinite { step, what }
    }

    /// Where a micro-batch's forward pass first gives a number that is not finite.
    fn search(&mut self, step: u64, micro_batch: MicroBatch) -> Result<Option<Finding>> {
        let call = self.begin(format_args!(
            "search of step {step}, micro-batch {micro_batch} for a number that is not finite"
        ))?;
        let forwards = Arc::new(Forwards::new(self.schedule().placement(), 1)?);
        let message = |_| Search {
            call,
            source: Arc::clone(&self.data),
            step,
            micro_batch,
            forwards: Arc::clone(&forwards),
        };
        let findings = self
            .ranks
            .ask_all("looking for the first number that is not finite", message);
        Ok(self.note(findings)?.into_iter().flatten().next())
    }
}
