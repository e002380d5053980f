//! When a run saves, and what it does when a checkpoint is on the disk.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use pipewright_stages::Stage;

use super::copying::Told;
use super::directory::writer::Writer;
use super::event::{Event, Task};
use super::progress::not_copied;
use super::saving::{OnItsWay, is_due};
use super::session::Session;
use crate::{Error, Result};

/// How long a wait for copies is, before it looks whether the run should end at once.
const COPIES: Duration = Duration::from_millis(200);

impl<S: Stage> Session<'_, S> {
    /// Saves after this step, if that is due. `best`: the validation has just given the lowest loss.
    pub(super) fn save_if_due(&mut self, best: bool) -> Result<()> {
        let done = self.done();
        if self.saving.saved.is_some_and(|saved| saved >= done) {
            // It was saved before the steps since an earlier one had to be repeated.
            return Ok(());
        }
        match best || is_due(done, self.save_every) || is_due(done, self.kept.every) {
            // No step follows, so there is nothing to be gained from a copy.
            true if !self.saves_beside || done >= self.steps => self.save(),
            true => self.save_beside(),
            false => Ok(()),
        }
    }

    /// Saves at the end of the run.
    pub(super) fn save_last(&mut self) -> Result<()> {
        self.wait()?;
        match self.saving.saved == Some(self.done()) {
            true => Ok(()),
            false => self.save(),
        }
    }

    /// Saves the trained steps when the run ends but the pipeline could continue, for example when a
    /// validation is refused.
    pub(super) fn save_before(&mut self, end: &Error) {
        if !matches!(end, Error::NotFinite { .. }) && self.pipeline.goes_on() {
            // The caller is told why the run ends.
            if let Err(error) = self.save_last() {
                self.listeners.warn(Task::Checkpoint, error);
            }
        }
    }

    /// Completes the checkpoint that is on its way when the run fails. Several processes can do that only
    /// where all of them know of the failure.
    pub(super) fn save_what_is_on_its_way(&mut self, failure: &Error) {
        let known = self.pipeline.goes_on() && matches!(failure, Error::NotFinite { .. });
        if (known || self.pipeline.processes() == 1)
            && let Err(error) = self.wait()
        {
            self.listeners.warn(Task::Checkpoint, error);
        }
    }

    /// Saves, and waits until the checkpoint is on the disk.
    fn save(&mut self) -> Result<()> {
        let started = Instant::now();
        self.wait()?;
        self.prepare()?;
        let step = self.done();
        self.pipeline.save(self.dir.checkpoint(step))?;
        let stalled = started.elapsed().as_secs_f64();
        let best = self.best.clone();
        self.told(OnItsWay { step, best, stalled });
        Ok(())
    }

    /// Copies what a checkpoint holds. It is written while the next steps run.
    fn save_beside(&mut self) -> Result<()> {
        let started = Instant::now();
        if let Some(earlier) = &self.saving.on_its_way {
            let (step, earlier) = (self.done(), earlier.step);
            self.listeners.tell(&Event::Waits { step, earlier });
            self.wait()?;
        }
        self.prepare()?;
        let step = self.done();
        self.pipeline.save_beside(self.dir.checkpoint(step))?;
        let stalled = started.elapsed().as_secs_f64();
        let best = self.best.clone();
        self.saving.on_its_way = Some(OnItsWay { step, best, stalled });
        Ok(())
    }

    fn prepare(&mut self) -> Result<()> {
        self.check_place()?;
        self.restore();
        self.write(Task::Metrics, |writer| writer.sync_lines());
        self.write(Task::Samples, |writer| writer.sync_samples());
        Ok(())
    }

    /// Writes files of the run again that somebody has removed.
    pub(super) fn restore(&mut self) {
        self.write(Task::Files, Writer::restore);
    }

    /// Tells what became of copies in the store.
    fn tell_copies(&mut self) {
        while let Some((Told { step, result }, url)) =
            self.copying.as_mut().and_then(|copying| Some((copying.hear()?, copying.url().to_owned())))
        {
            match result {
                Ok(Some(seconds)) => self.listeners.tell(&Event::Copied { step, url: &url, seconds }),
                Ok(None) => {}
                Err(error) => {
                    self.listeners.tell(&Event::NotCopied { step, url: &url, error: &error });
                    self.note(&not_copied(step, &url, &error));
                    if let Some(copying) = &mut self.copying {
                        copying.keep(error);
                    }
                }
            }
        }
    }

    /// With all other processes: waits for the copies at the end of the run.
    pub(super) fn wait_for_copies(&mut self) -> Result<()> {
        if !self.copies {
            return Ok(());
        }
        loop {
            let busy = self.copying.as_ref().is_some_and(|copying| copying.is_busy_after(COPIES));
            self.tell_copies();
            let goes_on = busy && !self.interrupt.is_urgent();
            // Short calls, so that nobody takes the wait for a stall.
            if !self.pipeline.of_first("waiting for copies of checkpoints", Ok(goes_on))? {
                break;
            }
        }
        let last = self.done();
        let copied = self.copying.as_mut().map_or(Ok(()), |copying| copying.check(last));
        self.pipeline.of_first("waiting for copies of checkpoints", copied)
    }

    /// Waits for the copies when the run has failed. What is missing then was told.
    pub(super) fn leave_copies(&mut self) {
        while self.copying.as_ref().is_some_and(|copying| copying.is_busy_after(COPIES))
            && !self.interrupt.is_urgent()
        {
            self.tell_copies();
        }
        self.tell_copies();
    }

    /// Looks whether the checkpoint that is on its way is on the disk. Waits for no disk.
    pub(super) fn look(&mut self) -> Result<()> {
        self.tell_copies();
        let saved = self.pipeline.saved();
        self.hear(saved)
    }

    /// Waits until the checkpoint that is on its way is on the disk.
    pub(super) fn wait(&mut self) -> Result<()> {
        let saved = self.pipeline.wait_until_saved();
        self.hear(saved)
    }

    fn hear(&mut self, saved: Result<Option<PathBuf>>) -> Result<()> {
        if self.pipeline.is_saving() {
            return saved.map(drop);
        }
        let on_its_way = self.saving.on_its_way.take();
        if let (Some(_), Some(on_its_way)) = (saved?, on_its_way) {
            self.told(on_its_way);
        }
        Ok(())
    }

    /// A checkpoint is on the disk: records it, removes old ones, and tells the listeners.
    fn told(&mut self, saved: OnItsWay) {
        let started = Instant::now();
        let OnItsWay { step, best, stalled } = saved;
        self.saving.saved = Some(step);
        self.saving.best = best;
        let best = self.saving.best.clone();
        self.write(Task::Mark, |writer| writer.mark(Some(step), &best));
        if let Some(copying) = &self.copying {
            copying.add(step, self.dir.checkpoint(step));
        }
        self.prune();
        self.write(Task::Picture, |writer| writer.draw());
        // The steps stand still for this too.
        let stalled = stalled + started.elapsed().as_secs_f64();
        self.saving.stalled += stalled;
        let path: &Path = &self.dir.checkpoint(step);
        self.listeners.tell(&Event::Checkpoint { step, path, stalled });
    }

    /// This step gave finite numbers, so the weights that it began with are good.
    pub(super) fn prove(&mut self, step: u64) {
        self.saving.unproven = step + 1;
        if self.saving.saved == Some(step) {
            // Older ones may be removed.
            self.prune();
        }
    }

    fn prune(&mut self) {
        if self.writer.is_none() {
            return;
        }
        let prune = |copied| self.dir.prune(self.kept, self.saving.best.best, self.saving.unproven, copied);
        let prune = || match &self.copying {
            Some(copying) => copying.beside(prune),
            None => prune(None),
        };
        if let Err(error) = self.pipeline.during("removing old checkpoints", prune) {
            self.listeners.warn(Task::Prune, error);
        }
    }
}
