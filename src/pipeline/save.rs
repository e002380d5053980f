//! A pipeline's weights: checkpoints, which all processes write and read together, and the hash.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use pipewright_stages::Stage;
use sha2::digest::common::hazmat::SerializableState;
use sha2::{Digest, Sha256};

use super::metrics;
use super::running::Pipeline;
use crate::actor::Job;
use crate::checkpoint::{Checkpoint, Draft, TensorInfo, Written};
use crate::error::{CheckpointError, Error, FabricError, Result};
use crate::id::WorldRank;
use crate::worker::Site;

impl<S: Stage> Pipeline<S> {
    /// Saves a checkpoint folder: weights, optimizer state, step, config, the data's fingerprint, and
    /// checksums. It is written under another name and then renamed: if anything fails, an earlier checkpoint
    /// of this name is still there. Only a checkpoint or an empty folder is ever replaced. When it returns,
    /// the checkpoint is on the disk. [`Pipeline::save_beside`] does not wait for that.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] when something else is at this path: it is left untouched. [`Error::Io`], for
    /// example when the disk is full. The pipeline continues to run. If a checkpoint was on its way
    /// and failed, that error is returned, and nothing is saved. If a stage or a device fails meanwhile, the
    /// pipeline stops.
    pub fn save(&mut self, folder: impl AsRef<Path>) -> Result<()> {
        let call = self.begin(format_args!("saving of {}", folder.as_ref().display()))?;
        let started = Instant::now();
        self.wait_until_saved()?;
        let waited = started.elapsed();
        let draft = Arc::new(self.draft(folder.as_ref())?);
        let written = self.ranks.ask_all("writing a checkpoint", |_| {
            let draft = Arc::clone(&draft);
            Job::attempt(move |worker| worker.write(call, &draft))
        });
        let written = self.note_unless_of_disk(written)?;
        let done = match self.process() {
            0 => {
                let (finish, written) = (self.description(), written.into_iter().flatten().collect());
                self.ranks.during("ending a checkpoint", || finish(&draft, written))
            }
            _ => Ok(()),
        };
        self.all_do("ending a checkpoint", done)?;
        metrics::stalled(started.elapsed(), waited);
        Ok(())
    }

    /// Remembers a failure that has stopped ranks. After one of the disk they continue. Another process has
    /// told which of the two its failure is to its own caller only: what follows will show it here.
    pub(super) fn note_unless_of_disk<T>(&mut self, result: Result<T>) -> Result<T> {
        match result {
            Err(Error::Io { .. } | Error::Checkpoint(_) | Error::Process { .. }) => result,
            result => self.note(result),
        }
    }

    /// Lays out a checkpoint with all processes.
    pub(super) fn draft(&self, folder: &Path) -> Result<Draft> {
        let make = match self.process() {
            0 => Draft::create,
            _ => Draft::beside,
        };
        let make = || make(folder, &self.tensors(), &*self.plan.optimizer);
        let draft = self.ranks.during("beginning a checkpoint", make);
        self.all_do("beginning a checkpoint", draft)
    }

    /// What completes a checkpoint of the weights as they are now, from what the ranks have written of it.
    pub(super) fn description(&self) -> impl FnOnce(&Draft, Vec<Written>) -> Result<()> + Send + 'static {
        let (step, config, data) = (self.next_step, self.config.clone(), Arc::clone(&self.plan.data));
        move |draft, written| {
            // If the data cannot be read any more, the weights are still worth saving.
            draft.finish(step, &config, data.fingerprint().ok(), written)
        }
    }

    /// Loads a checkpoint that was saved with any number of stages. Training then continues where it was
    /// saved, bit for bit. Every byte is compared with its checksum first.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] with the file and the parameter (no weight has changed), or [`Error::Io`].
    pub fn load(&mut self, folder: impl AsRef<Path>) -> Result<()> {
        let checkpoint = self.opened(folder.as_ref())?;
        self.steps_until(0);
        self.ranks.ask_all("verifying a checkpoint", |_| {
            let checkpoint = Arc::clone(&checkpoint);
            Job::ask(move |worker| worker.verify(&checkpoint))
        })?;
        let answers = self.ranks.ask_all("reading a checkpoint", |_| {
            let checkpoint = Arc::clone(&checkpoint);
            Job::renew(move |worker| worker.read(&checkpoint))
        });
        self.note(answers)?;
        self.next_step = checkpoint.step();
        self.text.end();
        self.forget_kept();
        Ok(())
    }

    /// The checkpoint in this folder, if it has the parameters of this model. No numbers are read.
    ///
    /// # Errors
    /// As for [`Pipeline::load`].
    pub(crate) fn opened(&mut self, folder: &Path) -> Result<Arc<Checkpoint>> {
        self.begin(format_args!("loading of {}", folder.display()))?;
        let checkpoint = Checkpoint::open(folder).and_then(|checkpoint| {
            checkpoint.check(&self.tensors(), &*self.plan.optimizer)?;
            Ok(Arc::new(checkpoint))
        });
        let checkpoint = self.all_do("opening a checkpoint", checkpoint)?;
        self.check_same(folder, &checkpoint)?;
        Ok(checkpoint)
    }

    /// The SHA-256, in hex, of all weights as little-endian `f32`: parameters in name order, tied ones once.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub fn weights_hash(&mut self) -> Result<String> {
        let call = self.begin(format_args!("hash of the weights"))?;
        if self.plan.shards() > 1 {
            let gathered =
                self.ranks.ask_all(HASHING, |_| Job::must(move |worker| worker.gather_shards(call)));
            self.note(gathered)?;
        }
        let mut by_name: BTreeMap<&str, Site> = BTreeMap::new();
        for info in self.parameters.iter().filter(|info| !info.is_tied) {
            by_name.insert(&info.name, info.site);
        }
        let sites: Vec<Site> = by_name.into_values().collect();
        let mut hash = Sha256::new();
        for run in sites.chunk_by(|a, b| a.rank == b.rank) {
            let sites = run.to_vec();
            let rank = run[0].rank;
            let job = Job::ask(move |worker| Ok(worker.hash(hash, &sites)?.serialize().to_vec()));
            let state = self.ranks.ask(HASHING, rank, job)?;
            hash = resumed_hash(self.ranks.first(rank), &state)?;
        }
        Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// The parameters, as a checkpoint describes them.
    fn tensors(&self) -> Vec<TensorInfo> {
        self.parameters.iter().map(TensorInfo::from).collect()
    }

    /// Waits until all processes have done their part. Fails if any has failed.
    pub(super) fn all_do<T>(&self, what: &str, own: Result<T>) -> Result<T> {
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
            Some(process) => {
                let ((step, sum), (other_step, other_sum)) = (all[0], all[process]);
                Err(CheckpointError::new(format!(
                    "{} is not one checkpoint for all processes: for process 0 it is of step {step} \
                     (checksum {sum} of its `state.json`), for process {process} of step {other_step} \
                     ({other_sum}): give all processes one file system, or copies of one checkpoint",
                    folder.display()
                ))
                .into())
            }
        }
    }
}

/// The call in which ranks continue each other's hash.
const HASHING: &str = "hashing the weights";

/// Continues a hash from the state that a rank gives.
fn resumed_hash(rank: WorldRank, state: &[u8]) -> Result<Sha256> {
    let hash = state.try_into().map_err(io::Error::other);
    let hash = hash.and_then(|state| Sha256::deserialize(state).map_err(io::Error::other));
    Ok(hash.map_err(|error| FabricError::unreadable_part(format_args!("rank {rank}"), HASHING, error))?)
}
