//! A run goes on after a process was lost: all join again, and return to a step whose weights are there.

use std::time::Instant;

use pipewright_stages::Stage;
use serde::{Deserialize, Serialize};

use super::directory::writer::Writer;
use super::event::{Event, GoesOnFrom, LostProcess, Return};
use super::session::Session;
use super::validation::BestSoFar;
use crate::checkpoint::named_step;
use crate::error::RestartError;
use crate::{Error, Result};

/// What all processes of a run must know when it goes on, as process 0 knows it.
#[derive(Serialize, Deserialize)]
struct Common {
    best: BestSoFar,
    saved: Option<u64>,
    unproven: u64,
    losses: u32,
    /// The newest checkpoint, if they have nothing in memory.
    checkpoint: Option<u64>,
    /// Whether the run began with step 0, and so can begin again.
    from_the_start: bool,
    /// What is in the lock of the run directory.
    signature: String,
}

impl<S: Stage> Session<'_, S> {
    /// Goes on after a failure, if it was the loss of another process, and that is allowed.
    ///
    /// # Errors
    /// The failure, if the run cannot go on; [`RestartError`]; whatever [`Pipeline::rejoin`] returns.
    ///
    /// [`Pipeline::rejoin`]: crate::Pipeline::rejoin
    pub(super) fn rejoin(&mut self, mut failure: Error) -> Result<()> {
        let (step, since) = (self.done(), Instant::now());
        loop {
            let why = failure.to_string();
            self.allow(failure, step)?;
            self.rejoining.pause(&self.interrupt);
            let joined = self.pipeline.rejoin().and_then(|_| self.go_on());
            match joined {
                Ok(from) => {
                    self.tell_return(step, from, since);
                    return Ok(());
                }
                Err(error) if error.is_end_of_wait() => {
                    return Err(self.not_waited_for(&format!("{why}; {error}")));
                }
                Err(error) => failure = error,
            }
        }
    }

    /// Counts a loss, and tells it.
    fn allow(&mut self, failure: Error, step: u64) -> Result<()> {
        let most = self.pipeline.most_rejoins();
        if most == 0 || !self.pipeline.may_rejoin(&failure) {
            return Err(match failure.lost_process() {
                Some(0) if most > 0 => {
                    let next = match self.dir.last().ok().flatten() {
                        Some(checkpoint) => format!(
                            "so start all processes again, with --resume, which continues from {}",
                            checkpoint.display()
                        ),
                        None => "so start all processes again: there is no checkpoint yet, and the run \
                             begins again"
                            .to_owned(),
                    };
                    RestartError::new(format!(
                        "process 0 has stopped without saying why: it was killed, or its machine or the \
                         network failed; it is the one that cannot be replaced, {next}"
                    ))
                    .into()
                }
                _ => failure,
            });
        }
        if self.rejoining.losses == most {
            return Err(RestartError::because(
                format!(
                    "{failure}; this was in step {step}, processes were replaced {most} times before, and \
                     `train.restarts` allows no more"
                ),
                failure,
            )
            .into());
        }
        self.rejoining.losses += 1;
        let lost = LostProcess { step, why: failure.to_string(), waits: self.pipeline.waits() };
        self.listeners.tell(&Event::Lost(&lost));
        self.note(&lost.to_string());
        Ok(())
    }

    /// The run was asked to end. So it does not wait for a process that takes the place of a lost one.
    fn not_waited_for(&self, why: &str) -> Error {
        let next = match self.dir.last().ok().flatten() {
            Some(checkpoint) => format!("; --resume continues from {}", checkpoint.display()),
            None => ", and there is no checkpoint yet: the same command begins the run again".to_owned(),
        };
        RestartError::new(format!(
            "{why}: this step cannot end without the lost process, so it is not saved{next}"
        ))
        .into()
    }

    /// With all other processes: what the run must know to go on. Returns from what it goes on.
    pub(super) fn go_on(&mut self) -> Result<GoesOnFrom> {
        self.pipeline.compare("comparing runs", self.rejoining.in_common.clone())?;
        let in_memory = self.pipeline.rejoined().and_then(|rejoined| rejoined.step);
        let own = self.common(in_memory);
        let common = self.pipeline.of_first("going on after a loss", own)?;
        self.dir.check_shared(&common.signature)?;
        for reference in &self.references {
            self.pipeline.share_reference(reference)?;
        }
        let from = match (in_memory, common.checkpoint) {
            (Some(_), _) => GoesOnFrom::Memory,
            (None, Some(step)) => GoesOnFrom::Checkpoint(self.dir.checkpoint(step)),
            (None, None) if common.from_the_start => GoesOnFrom::Start,
            (None, None) => {
                return Err(RestartError::new(
                    "a process and the one that kept a snapshot of it were lost together, and the checkpoint \
                     from which the run was resumed is no longer there: begin another run; checkpoint.every \
                     = N saves one every N steps",
                )
                .into());
            }
        };
        if let GoesOnFrom::Checkpoint(folder) = &from {
            self.pipeline.load(folder)?;
        }
        self.best = common.best;
        self.rejoining.losses = common.losses;
        self.saving.go_on(common.saved, common.unproven);
        // Only processes that have been there from the first step on could trace the same steps.
        self.tracer = None;
        self.forget_cut();
        self.forecast.take_if(|forecast| forecast.predicted().is_none());
        Ok(from)
    }

    fn common(&mut self, in_memory: Option<u64>) -> Result<Common> {
        let checkpoint = match in_memory {
            Some(_) => None,
            None => self.dir.last()?.and_then(|newest| named_step(&newest)),
        };
        Ok(Common {
            best: self.rejoining.best_at(in_memory.or(checkpoint).unwrap_or_default()),
            saved: self.saving.saved,
            unproven: self.saving.unproven,
            losses: self.rejoining.losses,
            checkpoint,
            from_the_start: self.first == 0,
            signature: self.writer.as_mut().map(Writer::signature).unwrap_or_default(),
        })
    }

    fn tell_return(&mut self, step: u64, from: GoesOnFrom, since: Instant) {
        let back = Return {
            step: self.done(),
            repeats: step.saturating_sub(self.done()),
            from,
            seconds: since.elapsed().as_secs_f64(),
        };
        self.listeners.tell(&Event::Return(&back));
        self.note(&back.to_string());
    }
}
