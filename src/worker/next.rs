//! The next tokens of a text, through all stages.

use pipewright_stages::Stage;

use super::Worker;
use super::execution::Execution;
use super::forwards::Forwards;
use super::next_tokens::NextTokens;
use crate::error::Result;
use crate::fabric::Call;
use crate::schedule::Cell;

impl<S: Stage> Worker<S> {
    /// Runs the next tokens of a text through this rank's stages. Returns the scores of what may follow, on
    /// the rank of the last stage, and nothing on other ranks. `forwards` must be for one micro-batch;
    /// `None`: another replica writes.
    ///
    /// # Errors
    /// [`crate::Error::Action`] with the pass that failed.
    pub(crate) fn next_scores(
        &mut self,
        call: Call,
        next: &NextTokens,
        forwards: Option<&Forwards>,
    ) -> Result<Vec<f32>> {
        self.transport.begin(call)?;
        let Some(forwards) = forwards else {
            return Ok(Vec::new());
        };
        let mut run = Execution::next(next);
        self.meter.start(None)?;
        self.run(forwards.round(0).1, &mut run)?;
        self.transport.check()?;
        Ok(run.next_scores)
    }

    /// The forward pass of one stage.
    pub(super) fn forward_next(
        &mut self,
        run: &mut Execution<'_>,
        cell: Cell,
        past: usize,
        input: S::Wire,
    ) -> Result<()> {
        let is_last = cell.stage == self.schedule.last_stage();
        let stage = &mut self.chunk(cell.stage).stage;
        if is_last {
            run.next_scores = stage.next_scores(past, input)?;
        } else {
            let output = stage.forward_next(past, input)?;
            self.pass_on(run, cell, output);
        }
        Ok(())
    }
}
