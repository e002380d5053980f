//! Moves activations to the host and back, as the schedule says.

use pipewright_stages::{Mode, Offloaded, Stage};

use super::Worker;
use super::execution::Execution;
use crate::error::Result;
use crate::schedule::{Move, MoveStep};

impl<S: Stage> Worker<S> {
    /// Does what is to be moved before the next pass. What is not on a GPU stays where it is.
    pub(super) fn move_activations(&mut self, run: &mut Execution<'_>) -> Result<()> {
        if run.mode != Mode::Train {
            return Ok(());
        }
        while let Some(&next) = self.moves.get(run.moved)
            && next.before <= run.passes
        {
            self.move_one(next)?;
            run.moved += 1;
        }
        run.passes += 1;
        Ok(())
    }

    fn move_one(&mut self, Move { step, cell, .. }: Move) -> Result<()> {
        let held = self.cell(cell);
        match (step, &mut held.saved, &mut held.away) {
            (MoveStep::Out, Some(saved), away) => {
                *away = Offloaded::start(&mut saved.value)?;
                let bytes = away.as_ref().map_or(0, Offloaded::bytes);
                self.meter.offload(bytes);
            }
            (MoveStep::Free, _, Some(away)) => {
                away.free()?;
                let bytes = away.bytes();
                self.meter.free(bytes);
            }
            (MoveStep::Back, _, Some(away)) => {
                away.fetch()?;
                let bytes = away.bytes();
                self.meter.hold(bytes);
            }
            // A frozen stage keeps nothing.
            _ => {}
        }
        Ok(())
    }
}
