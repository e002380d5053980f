//! A pipeline's checkpoints, which all processes write and read together.

use std::path::Path;
use std::sync::Arc;

use pipewright_stages::Stage;

use super::running::Pipeline;
use crate::actor::{Read, Verify, Write};
use crate::checkpoint::{Checkpoint, Draft, TensorInfo};
use crate::error::{CheckpointError, Error, Result};

impl<S: Stage> Pipeline<S> {
    /// Saves weights, optimizer state, step, config and the data's fingerprint as a checkpoint folder, with
    /// checksums. Written beside its place and renamed into it: whatever goes wrong, a checkpoint that stood
    /// there before still does. Only a checkpoint, or an empty folder, is ever replaced.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] when anything else stands there, which is left untouched, or when another program
    /// is saving to the same place; [`Error::Io`], as when the disk is full. The pipeline keeps running.
    pub fn save(&mut self, folder: impl AsRef<Path>) -> Result<()> {
        self.begin(format_args!("saving of {}", folder.as_ref().display()))?;
        let states = self.optimizer.state_names();
        let first = self.ranks.peers().process() == 0;
        let make = if first { Draft::create } else { Draft::beside };
        let draft = make(folder.as_ref(), &self.tensors(), states).map(Arc::new);
        let draft = self.all_do("beginning a checkpoint", draft)?;
        let written = self.ranks.ask_all("writing a checkpoint", |_| Write {
            draft: Arc::clone(&draft),
        })?;
        let done = if first {
            // Weights are worth saving also when the data cannot be read any more.
            let data = self.data.fingerprint().ok();
            let written = written.into_iter().flatten().collect();
            draft.finish(self.next_step, &self.config, data, written)
        } else {
            Ok(())
        };
        self.all_do("ending a checkpoint", done)
    }

    /// Loads a checkpoint saved with any number of stages; the next step continues where it was saved, bit
    /// for bit. Before any weight changes, each rank compares all that it will read with its checksums, and
    /// processes compare their checkpoints' descriptions. (A checkpoint of format 1 has no checksums: there,
    /// processes cannot tell whether their tensors are equal.)
    ///
    /// # Errors
    /// [`Error::Checkpoint`] naming the file and the parameter, or the process that has another checkpoint;
    /// [`Error::Io`]. No weight has changed and the pipeline keeps running, unless a file changes while it is
    /// loaded.
    pub fn load(&mut self, folder: impl AsRef<Path>) -> Result<()> {
        self.begin(format_args!("loading of {}", folder.as_ref().display()))?;
        let states = self.optimizer.state_names();
        let checkpoint = Checkpoint::open(folder.as_ref()).and_then(|checkpoint| {
            checkpoint.check(&self.tensors(), states)?;
            Ok(Arc::new(checkpoint))
        });
        let checkpoint = self.all_do("opening a checkpoint", checkpoint)?;
        self.check_same(folder.as_ref(), &checkpoint)?;
        self.ranks.ask_all("verifying a checkpoint", |_| Verify {
            checkpoint: Arc::clone(&checkpoint),
        })?;
        let answers = self.ranks.ask_all("reading a checkpoint", |_| Read {
            checkpoint: Arc::clone(&checkpoint),
        });
        self.note(answers)?;
        self.next_step = checkpoint.step();
        Ok(())
    }

    /// The parameters as a checkpoint knows them.
    fn tensors(&self) -> Vec<TensorInfo> {
        self.parameters.iter().map(TensorInfo::from).collect()
    }

    /// This process's part of what all do before any goes on; fails when any has failed.
    fn all_do<T>(&self, what: &str, own: Result<T>) -> Result<T> {
        let (done, value) = match own {
            Ok(value) => (Ok(vec![()]), Some(value)),
            Err(error) => (Err(error), None),
        };
        self.ranks.spread(what, done)?;
        Ok(value.expect("a failure of this process's own is told above"))
    }

    /// Refuses different checkpoints in what should be one folder.
    fn check_same(&self, folder: &Path, checkpoint: &Checkpoint) -> Result<()> {
        let own = (checkpoint.step(), checkpoint.description());
        let all = self.ranks.spread("comparing a checkpoint", Ok(vec![own]))?;
        match all.iter().position(|other| *other != all[0]) {
            None => Ok(()),
            Some(process) => Err(Error::from(CheckpointError::SeveralCheckpoints {
                folder: folder.to_owned(),
                process,
                steps: [all[0].0, all[process].0],
                descriptions: [all[0].1, all[process].1],
            })),
        }
    }
}
