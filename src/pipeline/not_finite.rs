//! What a step reports when a number is not finite.

use std::sync::Arc;

use pipewright_stages::Stage;

use super::running::Pipeline;
use crate::actor::Search;
use crate::error::{Error, Result};
use crate::id::MicroBatch;
use crate::worker::{Fault, Finding, Forwards, Outcome, ParameterInfo, Totals, Trained};

impl<S: Stage> Pipeline<S> {
    /// The step's totals, on which the ranks have agreed. If a number is not finite, an error with its place.
    pub(super) fn totals(&mut self, step: u64, answers: &[Trained]) -> Result<Totals> {
        match answers.first().expect("a pipeline has at least one rank").outcome {
            Outcome::Updated(totals) => Ok(totals),
            Outcome::NotFinite(Fault::Loss(micro_batch)) => {
                let place = self.search(step, micro_batch)?;
                let what = format!("the loss of micro-batch {micro_batch} is not finite; {place}");
                Err(Error::NotFinite { step, what })
            }
            Outcome::NotFinite(Fault::Gradient(stage, index)) => {
                let at = |info: &&ParameterInfo| (info.site.stage, info.site.index) == (stage, index);
                let name = self.parameters.iter().find(at).map_or("?", |info| &info.name);
                let what = format!("the gradient is not finite, first at `{name}` (stage {stage})");
                Err(Error::NotFinite { step, what })
            }
        }
    }

    /// Searches for the first number that is not finite in a micro-batch's forward pass.
    fn search(&mut self, step: u64, micro_batch: MicroBatch) -> Result<String> {
        let call = self.begin(format_args!(
            "search of step {step}, micro-batch {micro_batch} for a number that is not finite"
        ))?;
        let forwards = Arc::new(Forwards::new(self.schedule.placement(), 1)?);
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
        let found = self.note(findings)?.into_iter().flatten().next();
        Ok(found.map_or_else(
            || "every layer's output is finite, so the loss itself is at fault".to_owned(),
            |Finding { stage, what }| format!("first in stage {stage}, {what}"),
        ))
    }
}
