//! The loop of a run.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use pipewright_stages::Stage;

use super::copying::Copying;
use super::directory::folder::RunDir;
use super::directory::metrics::MetricsLine;
use super::directory::trace::Tracer;
use super::directory::writer::Writer;
use super::event::{Ended, Event, Failed, Outcome, Task};
use super::forecast::Forecast;
use super::listeners::Listeners;
use super::rejoining::{Lead, Rejoining};
use super::replanning::Replan;
use super::samples::Samples;
use super::saving::{Retention, Saving, is_due};
use super::validation::{Best, BestSoFar, Validated, Validation, ValidationSource};
use crate::data::Reference;
use crate::error::NotFinite;
use crate::interrupt::Interrupt;
use crate::pipeline::{self, Evaluation, Pipeline, StepReport};
use crate::privacy::Accountant;
use crate::{Error, Result, checkpoint};

/// Without a barrier, a run looks only after this number of steps whether somebody has asked for a new cut.
const REPLAN_EVERY: u64 = 32;

/// A run that is ready for its next step.
pub struct Session<'p, S: Stage> {
    pub(super) pipeline: &'p mut Pipeline<S>,
    pub(super) dir: RunDir,
    /// Only in the process that leads.
    pub(super) writer: Option<Writer>,
    /// In a process 0 that takes the place of a lost one, until it leads.
    pub(super) lead: Option<Lead>,
    pub(super) listeners: Listeners,
    pub(super) interrupt: Interrupt,
    pub(super) validation: Option<Validation>,
    pub(super) samples: Option<Samples>,
    pub(super) references: Vec<Arc<Reference>>,
    pub(super) replan: Option<Replan>,
    pub(super) steps: u64,
    pub(super) save_every: u64,
    pub(super) saves_beside: bool,
    pub(super) kept: Retention,
    /// The steps done when it began or was resumed.
    pub(super) first: u64,
    pub(super) saving: Saving,
    /// Whether checkpoints are copied to a store.
    pub(super) copies: bool,
    /// Only in the process that leads.
    pub(super) copying: Option<Copying>,
    pub(super) best: BestSoFar,
    pub(super) accountant: Option<Accountant>,
    pub(super) forecast: Option<Forecast>,
    /// Whether a forecast was asked for: in all processes, or in none.
    pub(super) forecasts: bool,
    pub(super) tracer: Option<Tracer>,
    pub(super) traced: Option<u64>,
    /// Whether the run has to end, or to ask something, while the next step has begun.
    pub(super) pause: bool,
    /// Notes about its beginning.
    pub(super) notes: Vec<String>,
    pub(super) rejoining: Rejoining,
}

impl<S: Stage> Session<'_, S> {
    /// The pipeline that is trained.
    pub fn pipeline(&self) -> &Pipeline<S> {
        self.pipeline
    }

    /// The directory of the run.
    pub fn dir(&self) -> &RunDir {
        &self.dir
    }

    /// Whether this process leads the run: it holds the lock and writes.
    pub fn leads(&self) -> bool {
        self.writer.is_some()
    }

    /// Notes about its beginning, for example that it continues with other data.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Ends before the first step. The other processes are told the cause. The directory of a new run is
    /// removed.
    pub fn abandon(self, cause: &Error) {
        if self.pipeline.processes() > 1 {
            self.pipeline.fail(cause);
        }
        if let Some(writer) = &self.writer {
            writer.abandon();
        }
    }

    /// Trains up to the last step, or until the run is asked to end, and saves.
    ///
    /// # Errors
    /// Whatever [`Pipeline::step`], [`Pipeline::evaluate`] and [`Pipeline::save`] return;
    /// [`Error::NotFinite`] also for the loss of a validation;
    /// [`RunError::Gone`](crate::error::RunError::Gone) and
    /// [`RunError::Taken`](crate::error::RunError::Taken).
    ///
    /// A checkpoint whose weights gave numbers that are not finite is set aside if there is an older one. If
    /// a validation is refused, the steps before it are saved.
    pub fn train(mut self) -> Result<Outcome> {
        let result = self.run();
        self.pipeline.steps_until(0);
        if let Err(error) = &result {
            self.fail(error);
        }
        result
    }

    fn run(&mut self) -> Result<Outcome> {
        let started = Instant::now();
        let mut validation = None;
        let ended = loop {
            match self.turn(&mut validation) {
                Ok(Some(ended)) => break ended,
                Ok(None) => {}
                Err(failure) => {
                    if let Some(ended) = self.rejoin(failure)? {
                        break ended;
                    }
                }
            }
        };
        if ended != Ended::Left {
            self.wait_for_copies()?;
            self.restore();
        }
        let done = self.done();
        let outcome = Outcome {
            ended,
            steps: done,
            trained: done - self.first,
            seconds: started.elapsed().as_secs_f64(),
            validation,
            checkpoint: self.dir.checkpoint(done),
            best: self.best.best,
            forecast: self.forecast.as_ref().and_then(Forecast::result),
            traced: self.traced,
            stalled: self.saving.stalled,
            staleness: self.pipeline.staleness(),
            privacy: self.accountant.as_ref().map(|accountant| accountant.spent(done)),
            warnings: self.listeners.take_warnings(),
        };
        self.note(&outcome.to_string());
        self.listeners.tell(&Event::End(&outcome));
        Ok(outcome)
    }

    /// One step, or the end of the run.
    fn turn(&mut self, validation: &mut Option<Evaluation>) -> Result<Option<Ended>> {
        self.look()?;
        if self.done() >= self.steps {
            return self.save_last().map(|()| Some(Ended::Done));
        }
        let (stopped, interrupted) = (self.listeners.stopped(), self.interrupt.is_requested());
        let ends = self.pipeline.any(stopped || interrupted)?;
        if self.pipeline.next_has_begun() {
            self.pause |= ends;
            *validation = self.step()?;
            return Ok(None);
        }
        if !ends {
            if self.take_in_newcomers()? {
                return Ok(None);
            }
            self.replan()?;
            *validation = self.step()?;
            return Ok(None);
        }
        if let Some(process) = self.who_leaves(stopped)? {
            return self.go_on_without(process);
        }
        // A server may have answered for an earlier step. After a settlement it asks anew.
        self.pipeline.settle()?;
        let interrupted = self.pipeline.any(interrupted)?;
        self.save_last()?;
        Ok(Some(match interrupted {
            true => Ended::Interrupted,
            false => Ended::Stopped,
        }))
    }

    /// Writes files of the run, in the process that leads.
    fn on_disk<T>(&mut self, write: impl FnOnce(&mut Writer) -> T) -> Option<T> {
        let (pipeline, writer) = (&*self.pipeline, self.writer.as_mut()?);
        Some(pipeline.during("writing files of the run", || write(writer)))
    }

    /// The same. If that fails, the run goes on, with a warning about this task.
    pub(super) fn write(&mut self, task: Task, write: impl FnOnce(&mut Writer) -> Result<()>) {
        if let Some(Err(error)) = self.on_disk(write) {
            self.listeners.warn(task, error);
        }
    }

    pub(super) fn done(&self) -> u64 {
        self.pipeline.next_step()
    }

    /// One step, with its validation, its sample and its checkpoint if they are due.
    fn step(&mut self) -> Result<Option<Evaluation>> {
        self.listeners.set_done(self.done());
        let report = self.advance()?;
        self.watch(&report);
        self.check_place()?;
        self.prove(report.loss_step);
        if report.taken_back {
            self.note("clipped when the next step had begun: both were run again");
        }
        for restart in &report.restarts {
            self.listeners.tell(&Event::Restart(restart));
            self.note(&restart.to_string());
        }
        if self.rejoining.told.is_new(&report)? {
            self.listeners.tell(&Event::Step(&report));
        }
        let validated = self.validate();
        let validation = validated.as_ref().ok().and_then(Option::as_ref);
        let may_be_stale = self.pipeline.staleness().is_some();
        let mut line = MetricsLine::new(
            &report,
            [self.pipeline.replicas(), self.pipeline.shards()],
            may_be_stale,
            (validation, self.pipeline.sequences_of(report.step)),
        )?;
        line.epsilon = self.accountant.as_ref().map(|accountant| accountant.epsilon(report.step + 1));
        if self.rejoining.told.lines.is_new(report.step) {
            self.write(Task::Metrics, |writer| writer.line(&line));
            self.write(Task::TensorBoard, |writer| writer.scalars(&line));
        }
        let validation = match validated {
            Ok(validation) => validation,
            Err(error) => {
                self.save_before(&error);
                return Err(error);
            }
        };
        self.sample_if_due()?;
        self.save_if_due(validation.as_ref().is_some_and(|validation| validation.best))?;
        Ok(validation.map(|validation| validation.all))
    }

    /// The step before which something else happens: nothing else comes between the steps before it.
    fn next_pause(&mut self) -> u64 {
        let done = self.done();
        let pauses = |done: u64| {
            let validates = self.validation.as_ref().map_or(0, |validation| validation.every);
            let samples = self.samples.as_ref().map_or(0, |samples| samples.every);
            let asks = self.replan.as_ref().map_or(0, |_| REPLAN_EVERY);
            let all = [validates, samples, asks, self.save_every, self.kept.every];
            let is_traced = self.tracer.as_ref().is_some_and(|tracer| tracer.wants(done));
            done >= self.steps || is_traced || all.iter().any(|every| is_due(done, *every))
        };
        let is_measured = self.forecast.as_ref().is_some_and(|forecast| forecast.predicted().is_none());
        match std::mem::take(&mut self.pause) || is_measured {
            true => done + 1,
            // No step is begun earlier than while the one before the one before it runs.
            false => (done + 1..done + 3).find(|done| pauses(*done)).unwrap_or(done + 3),
        }
    }

    /// One step of the pipeline. It is traced if its passes are needed.
    fn advance(&mut self) -> Result<StepReport> {
        let next = self.done();
        let pause = self.next_pause();
        self.pipeline.steps_until(pause);
        let tracer = self.tracer.as_mut().filter(|tracer| tracer.wants(next));
        let forecast = self.forecast.as_mut();
        let wanted = tracer.is_some() || forecast.as_ref().is_some_and(|forecast| forecast.wants_trace());
        let (report, timeline) = if wanted {
            let (report, timeline) = self.pipeline.step_traced()?;
            (report, Some(timeline))
        } else {
            (self.pipeline.step()?, None)
        };
        let schedule = self.pipeline.schedule();
        let sizes = [self.pipeline.replicas(), self.pipeline.shards()];
        if let (Some(tracer), Some(timeline), Some(_)) = (tracer, &timeline, &self.writer) {
            match tracer.take((next, report.seconds, timeline.clone()), (schedule, sizes), &self.dir) {
                Ok(traced) => self.traced = traced.or(self.traced),
                Err(error) => self.listeners.warn(Task::Trace, error),
            }
        }
        match forecast.map(|forecast| forecast.add(self.pipeline.schedules_and_barrier(), &report, timeline))
        {
            Some(Ok(Some(predicted))) => {
                self.listeners.tell(&Event::Predicted(predicted));
                self.write(Task::Forecast, |writer| writer.about(|about| about.predicted = Some(predicted)));
            }
            Some(Err(error)) => {
                self.forecast = None;
                self.listeners.warn(Task::Forecast, error);
            }
            Some(Ok(None)) | None => {}
        }
        Ok(report)
    }

    /// The validation after this step, if one is due, and whether its loss is the lowest so far.
    fn validate(&mut self) -> Result<Option<Validated>> {
        let step = self.done();
        let Some(validation) = self
            .validation
            .as_ref()
            .filter(|validation| step == self.steps || is_due(step, validation.every))
        else {
            return Ok(None);
        };
        let mut each = Vec::new();
        for ValidationSource { name, source, micro_batches } in &validation.sources {
            each.push((name.clone(), self.pipeline.evaluate(Arc::clone(source), *micro_batches)?));
        }
        let all = Evaluation::of_all(&each.iter().map(|(_, one)| *one).collect::<Vec<_>>());
        if each.len() == 1 {
            each.clear();
        }
        let (validation_loss, has_targets) = (all.loss, all.weight > 0.0);
        if has_targets && !validation_loss.is_finite() {
            let what = Box::new(NotFinite::Validation { loss: validation_loss });
            return Err(Error::NotFinite { step, what });
        }
        let best = has_targets && self.best.offer(Best { step, validation_loss });
        if best {
            let saved = self.saving.saved.unwrap_or(u64::MAX);
            let back_to = saved.min(self.pipeline.oldest_kept());
            self.rejoining.add_best(&self.best, back_to);
        }
        if self.rejoining.told.validations.is_new(step) {
            pipeline::validated(&all);
            self.listeners.tell(&Event::Validation { step, evaluation: &all, sources: &each, best });
        }
        Ok(Some(Validated { all, each, best }))
    }

    /// Fails if the directory no longer belongs to this run.
    pub(super) fn check_place(&mut self) -> Result<()> {
        if let Some(odd) = self.on_disk(Writer::check_place).transpose()?.flatten() {
            self.listeners.warn(Task::Lock, odd);
        }
        Ok(())
    }

    /// Adds the beginning to the run's history, with the notes about it.
    pub(super) fn note_beginning(&mut self, resumed: bool) {
        if resumed {
            self.note_old_cut();
        }
        self.note_with_cut(if resumed { "resumed" } else { "began" });
        for odd in self.notes.clone() {
            self.note(&odd);
        }
    }

    /// Adds an event to the run's history.
    pub(super) fn note(&mut self, event: &str) {
        let step = self.done();
        self.write(Task::History, |writer| writer.note(step, event));
    }

    /// After a failure: tells the other processes, and tells the listeners from which checkpoint the run can
    /// continue.
    fn fail(&mut self, error: &Error) {
        self.listeners.tell_stalls();
        self.save_what_is_on_its_way(error);
        if self.pipeline.processes() > 1 {
            self.pipeline.fail(error);
        }
        if self.writer.is_none() {
            return;
        }
        self.note(&format!("failed: {error}"));
        let not_finite = matches!(error, Error::NotFinite { .. });
        let result = match error {
            Error::NotFinite { step, .. } => self.set_aside_bad(*step),
            _ => Ok((None, false)),
        };
        let (set_aside, last_is_bad) = result.unwrap_or_else(|error| {
            self.listeners.warn(Task::Prune, error);
            (None, false)
        });
        let failed =
            Failed { set_aside, last: self.dir.last().ok().flatten(), last_is_bad, repeats: not_finite };
        self.listeners.tell(&Event::Failed(&failed));
        // If another process takes the place of this one, it must not wait for the lock.
        if self.pipeline.most_rejoins() == 0 || !error.is_left_early() {
            self.leave_copies();
        }
    }

    /// Sets the checkpoint after `done` steps aside, if there is an older one: its weights gave numbers that
    /// are not finite. Returns its new path, and whether the bad one is the only one.
    fn set_aside_bad(&mut self, done: u64) -> Result<(Option<PathBuf>, bool)> {
        let bad = self.dir.checkpoint(done);
        if !bad.exists() {
            return Ok((None, false));
        }
        if self.dir.newest_good(done)?.is_none() {
            return Ok((None, true));
        }
        let aside = self.dir.set_aside(done)?;
        self.note(&format!("set aside {}", aside.display()));
        if let Some(copying) = &self.copying {
            copying.remove(done);
        }
        let best = self.saving.forget(done).clone();
        let last = self.dir.last()?.and_then(|path| checkpoint::named_step(&path));
        self.write(Task::Mark, |writer| writer.mark(last, &best));
        Ok((Some(aside), false))
    }

    /// Writes a text after this step, if one is due.
    fn sample_if_due(&mut self) -> Result<()> {
        let done = self.done();
        let Some(samples) =
            self.samples.as_ref().filter(|samples| done == self.steps || is_due(done, samples.every))
        else {
            return Ok(());
        };
        let sample = samples.write(self.pipeline)?;
        if self.rejoining.told.samples.is_new(done) {
            self.listeners.tell(&Event::Sample(&sample));
            self.write(Task::Samples, |writer| writer.sample(&sample));
        }
        Ok(())
    }
}

impl<S: Stage> std::fmt::Debug for Session<'_, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("dir", &self.dir).field("steps", &self.steps).finish_non_exhaustive()
    }
}
