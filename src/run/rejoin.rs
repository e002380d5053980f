//! A run goes on after a process was lost: all join again, and return to a step whose weights are there.

use std::time::Instant;

use pipewright_stages::Stage;
use serde::{Deserialize, Serialize};

use super::copying::Copying;
use super::directory::claim::Claim;
use super::directory::writer::Writer;
use super::event::{Ended, Event, GoesOnFrom, LostProcess, Return, Task, ends_alone, leaves};
use super::rejoining::{Lead, Told};
use super::session::Session;
use super::validation::BestSoFar;
use crate::checkpoint::named_step;
use crate::error::RestartError;
use crate::pipeline::{Leaving, Wish};
use crate::{Error, Result};

/// After processes were taken in, the run goes on for this many times as long before others are.
const PAUSES: u32 = 10;

/// What all processes of a run must know when it goes on, as the first process knows it that was there
/// before.
#[derive(Serialize, Deserialize)]
struct Common {
    best: BestSoFar,
    /// All bests to which it may go back, the oldest first.
    bests: Vec<BestSoFar>,
    saved: Option<u64>,
    /// The best checkpoint on the disk.
    best_saved: BestSoFar,
    unproven: u64,
    losses: u32,
    /// The newest checkpoint, if they have nothing in memory.
    checkpoint: Option<u64>,
    /// The steps done when the run began or was resumed.
    first: u64,
}

impl<S: Stage> Session<'_, S> {
    /// Goes on after a failure, if it was the loss of another process, and that is allowed. Returns how the
    /// run has ended for this process, if it was asked to end meanwhile and the others may go on without it.
    ///
    /// # Errors
    /// The failure, if the run cannot go on; [`RestartError`]; whatever [`Pipeline::rejoin`] returns.
    ///
    /// [`Pipeline::rejoin`]: crate::Pipeline::rejoin
    pub(super) fn rejoin(&mut self, mut failure: Error) -> Result<Option<Ended>> {
        self.pipeline.heed(self.interrupt.clone());
        let (step, since) = (self.done(), Instant::now());
        loop {
            if failure.is_end_of_wait() && self.ends_alone() {
                self.listeners.show_everywhere(&ends_alone(self.pipeline.process()));
                return Ok(Some(Ended::Left));
            }
            let why = failure.to_string();
            self.allow(failure, step)?;
            self.rejoining.pause(&self.interrupt);
            let joined = self.pipeline.rejoin().and_then(|_| self.go_on());
            match joined {
                Ok(from) => {
                    self.tell_return(step, from, since);
                    return Ok(None);
                }
                Err(error) if error.is_end_of_wait() && !self.ends_alone() => {
                    return Err(self.not_waited_for(&format!("{why}; {error}")));
                }
                Err(error) => failure = error,
            }
        }
    }

    /// Whether this process ends alone if it is asked to end while the run waits: as one that is lost.
    fn ends_alone(&self) -> bool {
        let [_, whole, fewest] = self.pipeline.sizes();
        fewest < whole && self.pipeline.process() != 0 && self.interrupt.is_by_sigterm()
    }

    /// Lets processes take part that wait for it, in a run that goes on without some. Returns whether there
    /// are any.
    pub(super) fn take_in_newcomers(&mut self) -> Result<bool> {
        let heeds = self.rejoining.heeds_newcomers();
        if !self.pipeline.has_newcomers(heeds)? {
            return Ok(false);
        }
        self.settle_before_regrouping()?;
        self.note("a process waits to take part");
        self.regroup(None).map(|()| true)
    }

    /// A process that leaves now, while the others go on. `stopped`: whether a listener has ended the run.
    pub(super) fn who_leaves(&mut self, stopped: bool) -> Result<Option<u32>> {
        let leads = self.writer.is_some();
        let leaving = self.pipeline.who_leaves(match stopped || self.interrupt.is_requested() {
            false => Wish::ToGoOn,
            true if stopped || leads || !self.interrupt.is_by_sigterm() => Wish::TheEnd,
            true => Wish::ToLeave,
        })?;
        Ok(match leaving {
            Leaving::Nobody => None,
            Leaving::Process(process) => Some(process),
            Leaving::NoRoom(process, why) => {
                let event = format!("process {process} was asked to end, and the others have no room: {why}");
                self.note(&event);
                self.listeners.show_everywhere(&event);
                None
            }
        })
    }

    /// A process leaves, which may be this one. Returns how the run has ended, if it is this one.
    pub(super) fn go_on_without(&mut self, process: u32) -> Result<Option<Ended>> {
        self.settle_before_regrouping()?;
        let step = self.done();
        self.listeners.tell(&Event::Leaves { step, process });
        self.note(&leaves(step, process));
        if process == self.pipeline.process() {
            self.listeners.show_everywhere(&leaves(step, process));
            return self.pipeline.leave().map(|()| Some(Ended::Left));
        }
        self.regroup(Some(process)).map(|()| None)
    }

    /// The checkpoint that is on its way is whole. From now on, until all have joined again, a request to end
    /// waits.
    fn settle_before_regrouping(&mut self) -> Result<()> {
        self.pipeline.heed(self.interrupt.patient(self.pipeline.waits()));
        self.wait()
    }

    /// Between two steps: all join again, without the process that has `left`, and with those that wait.
    fn regroup(&mut self, left: Option<u32>) -> Result<()> {
        let (step, since) = (self.done(), Instant::now());
        let mut joined = self.pipeline.regroup(left).and_then(|_| self.go_on());
        if let Err(failure) = &joined
            && failure.lost_process().is_none()
            && !failure.is_end_of_wait()
            && self.pipeline.has_left()
        {
            // What a newcomer cannot do need not end the others.
            self.note(&format!("goes on without the process that waited: {failure}"));
            joined = self.pipeline.rejoin().and_then(|_| self.go_on());
        }
        if left.is_none() {
            // One that fails each time must not take all the time.
            self.rejoining.heed_newcomers_after(PAUSES * since.elapsed());
        }
        match joined {
            Ok(from) => {
                self.pipeline.heed(self.interrupt.clone());
                self.tell_return(step, from, since);
                Ok(())
            }
            Err(failure) => Err(failure),
        }
    }

    /// Counts a loss, and tells it.
    fn allow(&mut self, failure: Error, step: u64) -> Result<()> {
        let most = self.pipeline.most_rejoins();
        if most == 0 || !self.pipeline.may_rejoin(&failure) {
            let waited = self.rejoining.losses > 0 && self.pipeline.has_left();
            return Err(if waited { self.not_replaced(failure) } else { failure });
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
        let [_, whole, fewest] = self.pipeline.sizes();
        let number = |lost: u32| self.pipeline.started_as(lost).filter(|number| *number != lost);
        let lost = LostProcess {
            step,
            why: failure.to_string(),
            waits: self.pipeline.waits(),
            started_as: failure.lost_process().and_then(number),
            needed: (fewest < whole && failure.lost_process() != Some(0)).then_some(fewest),
        };
        self.listeners.tell(&Event::Lost(&lost));
        if failure.lost_process() == Some(0) {
            self.listeners.show_everywhere(&format!("warning: {lost}"));
        }
        self.note(&lost.to_string());
        Ok(())
    }

    /// The run was asked to end. So it does not wait for a process that takes the place of a lost one.
    fn not_waited_for(&self, why: &str) -> Error {
        let next = self.next();
        RestartError::new(format!(
            "{why}: this step cannot end without the lost process, so it is not saved{next}"
        ))
        .into()
    }

    /// No process has taken the place of a lost one.
    fn not_replaced(&self, failure: Error) -> Error {
        RestartError::because(format!("{failure}{}", self.next()), failure).into()
    }

    /// How a run that could not go on continues.
    fn next(&self) -> String {
        match self.dir.last().ok().flatten() {
            Some(checkpoint) => format!("; --resume continues from {}", checkpoint.display()),
            None => ", and there is no checkpoint yet: the same command begins the run again".to_owned(),
        }
    }

    /// With all other processes: what the run must know to go on. Returns from what it goes on.
    pub(super) fn go_on(&mut self) -> Result<GoesOnFrom> {
        self.pipeline.compare("comparing runs", self.rejoining.in_common.clone())?;
        let in_memory = self.pipeline.rejoined().and_then(|rejoined| rejoined.step);
        let own = match self.rejoining.takes_part {
            true => Ok(None),
            false => self.common(in_memory).map(Some),
        };
        let common: Option<Common> = self.pipeline.any_of("going on after a loss", own)?;
        let common = common.ok_or_else(|| {
            RestartError::new(
                "all processes that knew this run were lost: start all again, with --resume if there is a \
                 checkpoint",
            )
        })?;
        for reference in &self.references {
            self.pipeline.share_reference(reference)?;
        }
        let from = match (in_memory, common.checkpoint) {
            (Some(_), _) => GoesOnFrom::Memory,
            (None, Some(step)) => GoesOnFrom::Checkpoint(self.dir.checkpoint(step)),
            (None, None) if common.first == 0 => GoesOnFrom::Start,
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
        self.take_lead()?;
        self.best = common.best;
        self.saving.best = common.best_saved;
        self.rejoining.losses = common.losses;
        self.saving.go_on(common.saved, common.unproven);
        if std::mem::take(&mut self.rejoining.takes_part) {
            (self.first, self.rejoining.bests) = (common.first, common.bests);
            let (saved, best) = (self.saving.saved, self.saving.best.clone());
            self.write(Task::Mark, |writer| writer.mark(saved, &best));
        }
        // Only processes that have been there from the first step on could trace the same steps.
        self.tracer = None;
        self.follow_cut();
        self.forecast.take_if(|forecast| forecast.predicted().is_none());
        Ok(from)
    }

    fn common(&self, in_memory: Option<u64>) -> Result<Common> {
        let newest = self.dir.last()?.and_then(|newest| named_step(&newest));
        let checkpoint = newest.filter(|_| in_memory.is_none());
        // Process 0 may have put a checkpoint in its place, and been lost before the others heard of it.
        let unheard = newest.filter(|newest| self.saving.saved.is_none_or(|saved| saved < *newest));
        Ok(Common {
            best: self.rejoining.best_at(in_memory.or(checkpoint).unwrap_or_default()),
            bests: self.rejoining.bests.clone(),
            saved: self.saving.saved.max(newest),
            best_saved: unheard.map_or_else(|| self.saving.best.clone(), |step| self.rejoining.best_at(step)),
            unproven: self.saving.unproven,
            losses: self.rejoining.losses,
            checkpoint,
            first: self.first,
        })
    }

    /// In a process 0 that takes the place of a lost one: locks the run directory, and opens the run's files.
    /// All processes check that they see them.
    fn take_lead(&mut self) -> Result<()> {
        let opened = self.open_files();
        let signature = self.pipeline.of_first("looking at the run directory", opened)?;
        self.dir.check_shared(&signature)
    }

    /// Returns what is in the lock of the run directory.
    fn open_files(&mut self) -> Result<String> {
        if let Some(Lead { files, copy_to }) = self.lead.take() {
            let claim = self.pipeline.during("waiting for the lock of the run directory", || {
                Claim::again(&self.dir, self.pipeline.waits(), &self.interrupt)
            });
            self.writer = Some(Writer::begin(files, claim?, self.done())?);
            self.rejoining.told = Told::until(self.done());
            self.copying = copy_to.map(Copying::start).transpose()?;
            if let (Some(copying), Some(newest)) = (&self.copying, self.dir.last()?)
                && let Some(step) = named_step(&newest)
            {
                copying.add(step, newest);
            }
        }
        Ok(self.writer.as_mut().map(Writer::signature).unwrap_or_default())
    }

    fn tell_return(&mut self, step: u64, from: GoesOnFrom, since: Instant) {
        let [there, whole, _] = self.pipeline.sizes();
        let back = Return {
            step: self.done(),
            repeats: step.saturating_sub(self.done()),
            from,
            seconds: since.elapsed().as_secs_f64(),
            processes: [there, whole],
        };
        self.listeners.tell(&Event::Return(&back));
        self.note(&back.to_string());
    }
}
