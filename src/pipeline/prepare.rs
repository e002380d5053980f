//! The checks that a run makes with its pipeline before the first step.

use std::sync::Arc;

use pipewright_stages::{Shape, Stage};

use super::running::Pipeline;
use super::shapes::check_shapes;
use crate::error::{CallError, Result};
use crate::groups::Groups;
use crate::worker::Forwards;

/// The forward passes of one replica: the number of its first micro-batch, and its passes if it has any.
pub(super) type Passes = (u32, Option<Arc<Forwards>>);

impl<S: Stage> Pipeline<S> {
    /// Refuses processes whose parts differ. `parts` are names and values, in the same order in every
    /// process. `what` names the call.
    ///
    /// # Errors
    /// [`FabricError::Refused`](crate::error::FabricError::Refused), in all processes.
    pub(crate) fn compare(&mut self, what: &str, parts: Vec<(String, String)>) -> Result<()> {
        self.begin(format_args!("{what}"))?;
        let compared = self.ranks.together(what, |peers| peers.compare(what, Ok(parts)));
        self.note(compared)
    }

    /// Refuses an evaluation that [`Pipeline::evaluate`] would refuse. It evaluates nothing.
    ///
    /// # Errors
    /// As for [`Pipeline::evaluate`]. The pipeline continues to run.
    pub(crate) fn check_evaluation(&mut self, shapes: (Shape, Shape), micro_batches: u32) -> Result<()> {
        self.begin(format_args!(
            "check of an evaluation of {micro_batches} micro-batches of {}",
            shapes.0
        ))?;
        self.forwards(shapes, micro_batches).map(drop)
    }

    /// Whether calls are still possible: no failure has stopped the pipeline.
    pub(crate) fn goes_on(&self) -> bool {
        self.failure.is_none()
    }

    /// The forward passes of an evaluation, by replica: the number of its first micro-batch, and its passes
    /// if it has any. Refuses shapes that the stages refuse.
    pub(super) fn forwards(&self, shapes: (Shape, Shape), micro_batches: u32) -> Result<Vec<Passes>> {
        if micro_batches == 0 {
            return Err(CallError::no_micro_batches().into());
        }
        let (replicas, placement) = (self.replicas(), self.schedule().placement());
        let shares = Groups::new(micro_batches, replicas);
        let passes = |replica| {
            let share = shares.share(replica, replicas);
            let forwards = Forwards::new(placement, share.len() as u32);
            let forwards = (!share.is_empty()).then(|| forwards.map(Arc::new));
            Ok((share.start, forwards.transpose()?))
        };
        let forwards = (0..replicas).map(passes).collect::<Result<_>>()?;
        if shapes != self.data.shapes() {
            let numbers = check_shapes(&self.ranks, self.schedule(), shapes)?;
            self.allow(numbers)?;
        }
        Ok(forwards)
    }
}
