//! What a run asks of its pipeline before the first step.

use pipewright_stages::{Shape, Stage};

use super::running::Pipeline;
use super::shapes::check_shapes;
use crate::error::Result;
use crate::worker::Forwards;

impl<S: Stage> Pipeline<S> {
    /// Refuses processes whose parts differ: names and values, in an order that is the same in every process.
    /// `what` names the call.
    ///
    /// # Errors
    /// [`FabricError::NotAlike`](crate::error::FabricError::NotAlike), in all processes.
    pub(crate) fn compare(&mut self, what: &str, parts: Vec<(String, String)>) -> Result<()> {
        self.begin(format_args!("{what}"))?;
        let compared = self.ranks.peers().compare(what, Ok(parts));
        self.note(compared)
    }

    /// Refuses an evaluation that cannot be, as [`Pipeline::evaluate`] does, and does none.
    ///
    /// # Errors
    /// As for [`Pipeline::evaluate`]: the pipeline keeps running.
    pub(crate) fn check_evaluation(&mut self, shapes: (Shape, Shape), micro_batches: u32) -> Result<()> {
        self.begin(format_args!(
            "check of an evaluation of {micro_batches} micro-batches of {}",
            shapes.0
        ))?;
        self.forwards(shapes, micro_batches).map(drop)
    }

    /// Whether it takes calls: no failure has stopped it.
    pub(crate) fn goes_on(&self) -> bool {
        self.failure.is_none()
    }

    /// The forward passes of an evaluation. Refuses what the stages cannot work on.
    pub(super) fn forwards(&self, shapes: (Shape, Shape), micro_batches: u32) -> Result<Forwards> {
        let forwards = Forwards::new(self.schedule.placement(), micro_batches)?;
        if shapes != self.data.shapes() {
            check_shapes(&self.ranks, &self.schedule, shapes)?;
        }
        Ok(forwards)
    }
}
