//! Who may end a call early, and who is told of stalls.

use std::sync::Arc;

use pipewright_stages::Stage;

use super::running::Pipeline;
use crate::interrupt::Interrupt;
use crate::situation::Stall;

impl<S: Stage> Pipeline<S> {
    /// From now on this interrupt can end a call early, with an error: at once after
    /// [`Interrupt::request_now`]. With several processes, also after [`Interrupt::request`], if another
    /// process does not answer. A [`Run`](crate::run::Run) calls this with its own interrupt.
    pub fn heed(&mut self, interrupt: Interrupt) {
        if let Some(again) = &mut self.again {
            again.heed(interrupt.clone());
        }
        self.ranks.heed(interrupt);
    }

    /// Does something besides calls, on this thread, that may take its time: for messages about stalls.
    pub(crate) fn during<T>(&self, what: &str, act: impl FnOnce() -> T) -> T {
        self.ranks.during(what, act)
    }

    /// From now on this is told of stalls: see
    /// [`PipelineBuilder::on_stall`](super::PipelineBuilder::on_stall).
    pub(crate) fn on_stall(&mut self, listener: impl Fn(&Stall) + Send + Sync + 'static) {
        let listener = Arc::new(listener);
        if let Some(again) = &mut self.again {
            again.on_stall(Arc::clone(&listener) as _);
        }
        self.ranks.on_stall(listener);
    }
}
