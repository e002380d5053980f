//! Checkpoints that are written while the next steps run.
//!
//! The ranks copy their tensors between two steps, and a thread of each process writes the copies. Process 0
//! completes the checkpoint when it knows that all processes have written theirs. They tell each other
//! between two steps, in a call of all: so no step waits for a disk, and all processes find the checkpoint
//! complete after the same step.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use pipewright_stages::Stage;

use super::metrics;
use super::running::{Pipeline, Unfinished};
use crate::actor::Job;
use crate::checkpoint::Writing;
use crate::error::Result;

impl<S: Stage> Pipeline<S> {
    /// Saves a checkpoint folder as [`Pipeline::save`] does, but returns when weights and optimizer state are
    /// copied. A thread writes the copies while the next steps run. The copies take as much memory as weights
    /// and optimizer state, which is kept for the next checkpoint.
    ///
    /// One checkpoint at a time is on its way: another one waits until it is on the disk.
    /// [`Pipeline::saved`] tells when this one is. Call it between steps: where there are several processes,
    /// the checkpoint is completed only then. When the pipeline is dropped, it waits for the checkpoint, but
    /// not for longer than [`stall_limit`](super::PipelineBuilder::stall_limit) if the disk hangs.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use pipewright::{Pipeline, Result, schedule::Schedule};
    /// # use pipewright::data::{Corpus, Windows};
    /// # use pipewright::stages::{loss::CrossEntropy, models::Gpt};
    /// # fn main() -> Result<()> {
    /// # let (dim, context) = (16, 16);
    /// # let gpt = Gpt { vocab: 256, dim, layers: 2, heads: 2, context, dropout: 0.1, tied: true, seed: 1 };
    /// # let corpus = Arc::new(Corpus::built_in());
    /// # let data = Windows::drawn(Arc::clone(&corpus), 0..corpus.count(), 2, 16, 1)?;
    /// # let mut pipeline = Pipeline::builder()
    /// #     .schedule(Schedule::one_f_one_b(2, 4)?)
    /// #     .stages(gpt.model()?.split(2)?)
    /// #     .loss(CrossEntropy::default())
    /// #     .data(Arc::new(data))
    /// #     .launch()?;
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// for step in 1..=20 {
    ///     pipeline.step()?;
    ///     if let Some(saved) = pipeline.saved()? {
    ///         println!("{} is on the disk", saved.display());
    ///     }
    ///     if step % 10 == 0 {
    ///         pipeline.save_beside(folder.join(format!("step-{step:08}")))?;
    ///     }
    /// }
    /// assert_eq!(pipeline.wait_until_saved()?, Some(folder.join("step-00000020")));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`Pipeline::save`]. Errors of the writing come from [`Pipeline::saved`], or from the next call
    /// that saves.
    pub fn save_beside(&mut self, folder: impl AsRef<Path>) -> Result<()> {
        let folder = folder.as_ref();
        let call = self.begin(format_args!("saving of {} beside the steps", folder.display()))?;
        let started = Instant::now();
        self.wait_until_saved()?;
        let waited = started.elapsed();
        let draft = self.draft(folder)?;
        let own: Vec<_> = self.ranks.mesh().ranks_of(self.process()).collect();
        self.beside.copies.resize_with(own.len(), Arc::default);
        let copies = &self.beside.copies;
        let copied = self.ranks.ask_all("copying weights", |rank| {
            let copies = Arc::clone(&copies[own.iter().position(|own| *own == rank).unwrap_or(0)]);
            Job::must(move |worker| worker.copy(call, &copies))
        });
        self.note_unless_of_disk(copied)?;
        let (copies, describe) = (self.beside.copies.clone(), self.description());
        let draft = Arc::new(draft);
        let written = Arc::clone(&draft);
        let writing =
            Writing::start(folder, move || written.write_copies(&copies), move |all| describe(&draft, all));
        let mut writing = self.all_do("writing a checkpoint", writing)?;
        if self.processes() == 1 {
            // So it is completed even if nobody asks.
            writing.tell_others(Vec::new());
        }
        self.beside.on_its_way = Some(Unfinished { writing, folder: folder.to_owned(), is_written: false });
        metrics::stalled(started.elapsed(), waited);
        Ok(())
    }

    /// Whether a checkpoint of [`Pipeline::save_beside`] is on its way.
    pub fn is_saving(&self) -> bool {
        self.beside.on_its_way.is_some()
    }

    /// The folder of the checkpoint that was on its way, once it is on the disk. `None` while it is on its
    /// way, and if none is. It waits for no disk. With several processes it is a call of all while a
    /// checkpoint is on its way.
    ///
    /// # Errors
    /// Why the checkpoint could not be written. Then none is on its way any more, an earlier one of the same
    /// name is still there, and the pipeline continues to run.
    pub fn saved(&mut self) -> Result<Option<PathBuf>> {
        self.ask_saved(false)
    }

    /// As [`Pipeline::saved`], but waits until the checkpoint is on the disk.
    ///
    /// # Errors
    /// As for [`Pipeline::saved`], and
    /// [`CallError::Interrupted`](crate::error::CallError::Interrupted).
    pub fn wait_until_saved(&mut self) -> Result<Option<PathBuf>> {
        self.ask_saved(true)
    }

    fn ask_saved(&mut self, waits: bool) -> Result<Option<PathBuf>> {
        let Some(mut on_its_way) = self.beside.on_its_way.take() else {
            return Ok(None);
        };
        if self.processes() > 1 {
            let folder = on_its_way.folder.display();
            self.announce(format_args!("question whether {folder} is saved (waits: {waits})"))?;
        }
        match self.progress_of(&mut on_its_way, waits) {
            Ok(true) => Ok(Some(on_its_way.folder)),
            Ok(false) => {
                self.beside.on_its_way = Some(on_its_way);
                Ok(None)
            }
            Err(error) if error.is_left_early() => {
                on_its_way.writing.leave();
                self.note(Err(error))
            }
            Err(error) => Err(error),
        }
    }

    /// Waits until this process writes no more of a checkpoint that cannot be completed, unless that takes
    /// longer than a stall may last.
    pub(super) fn end_writing(&mut self) {
        let Some(Unfinished { mut writing, .. }) = self.beside.on_its_way.take() else {
            return;
        };
        let keep_waiting = || self.keep_waiting();
        let written = self.ranks.during("writing a checkpoint", || writing.own(Some(&keep_waiting)));
        if written.is_err_and(|error| error.is_left_early()) {
            writing.leave();
        }
    }

    fn keep_waiting(&self) -> Result<()> {
        let ended = self.ranks.peers().keep_waiting(None);
        ended.map_err(|ending| ending.error(Vec::new(), Vec::new()).into())
    }

    /// Whether a checkpoint is on the disk. All processes have the same answer.
    fn progress_of(&self, on_its_way: &mut Unfinished, waits: bool) -> Result<bool> {
        let interrupted = || self.keep_waiting();
        let keep_waiting: Option<&dyn Fn() -> Result<()>> = waits.then_some(&interrupted);
        let Unfinished { writing, is_written, .. } = on_its_way;
        let leads = self.process() == 0;
        if !*is_written {
            let own = self.ranks.during("writing a checkpoint", || writing.own(keep_waiting));
            // Process 0 keeps its own.
            let own = own.map(|own| if leads { own.map(|_| Vec::new()) } else { own });
            let all = self.ranks.spread("writing a checkpoint", own.map(|own| vec![own]))?;
            let Some(all) = all.into_iter().collect::<Option<Vec<_>>>() else {
                return Ok(false);
            };
            writing.tell_others(all.into_iter().flatten().collect());
            *is_written = true;
        }
        let ended = match leads {
            true => self.ranks.during("ending a checkpoint", || writing.has_ended(keep_waiting)),
            false => Ok(true),
        };
        let all = self.ranks.spread("ending a checkpoint", ended.map(|ended| vec![ended]))?;
        Ok(!all.contains(&false))
    }
}
