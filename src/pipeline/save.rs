//! A pipeline's checkpoints, which all processes write and read together.

use std::path::Path;
use std::sync::Arc;

use pipewright_stages::Stage;

use super::running::Pipeline;
use crate::actor::{Read, Verify, Write};
use crate::checkpoint::{Checkpoint, Draft, TensorInfo};
use crate::error::{CheckpointError, Error, Result};

impl<S: Stage> Pipeline<S> {
    /// Saves a checkpoint folder: weights, optimizer state, step, config, the data's fingerprint, and
    /// checksums. It is written under another name and then renamed: if anything fails, an earlier checkpoint
    /// of this name is still there. Only a checkpoint or an empty folder is ever replaced.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] when something else is at this path: it is left untouched. [`Error::Io`], for
    /// example when the disk is full. The pipeline continues to run.
    pub fn save(&mut self, folder: impl AsRef<Path>) -> Result<()> {
        let call = self.begin(format_args!("saving of {}", folder.as_ref().display()))?;
        let states = self.optimizer.state_names();
        let first = self.ranks.peers().process() == 0;
        let make = if first { Draft::create } else { Draft::beside };
        let draft = make(folder.as_ref(), &self.tensors(), states).map(Arc::new);
        let draft = self.all_do("beginning a checkpoint", draft)?;
        let written = self.ranks.ask_all("writing a checkpoint", |_| Write {
            call,
            draft: Arc::clone(&draft),
        })?;
        let done = if first {
            // If the data cannot be read any more, the weights are still worth saving.
            let data = self.data.fingerprint().ok();
            let written = written.into_iter().flatten().collect();
            draft.finish(self.next_step, &self.config, data, written)
        } else {
            Ok(())
        };
        self.all_do("ending a checkpoint", done)
    }

    /// Loads a checkpoint that was saved with any number of stages. Training then continues where it was
    /// saved, bit for bit. Every byte is compared with its checksum first.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] with the file and the parameter (no weight has changed), or [`Error::Io`].
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
        self.text.end();
        Ok(())
    }

    /// The parameters, as a checkpoint describes them.
    fn tensors(&self) -> Vec<TensorInfo> {
        self.parameters.iter().map(TensorInfo::from).collect()
    }

    /// Waits until all processes have done their part. Fails if any has failed.
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
