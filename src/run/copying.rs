//! The thread that copies a run's checkpoints to a store, one after the other, while steps run.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, unbounded};

use crate::checkpoint;
use crate::error::{StoreError, caught};
use crate::store::Store;
use crate::{Error, Result};

/// What became of a copy.
#[derive(Debug)]
pub(super) struct Told {
    /// The steps after which the checkpoint was made.
    pub(super) step: u64,
    /// The seconds that it took, if something had to be copied.
    pub(super) result: Result<Option<f64>>,
}

/// The copies of a run's checkpoints. If it is dropped, the thread ends after its next copy, and nobody
/// waits: what is half written then has no manifest.
#[derive(Debug)]
pub(super) struct Copying {
    shared: Arc<Shared>,
    told: Receiver<Told>,
    /// Why the newest checkpoint that failed could not be copied.
    failure: Option<Error>,
}

#[derive(Debug)]
struct Shared {
    store: Store,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The checkpoints that are not known to be in the store, by their steps.
    missing: BTreeMap<u64, PathBuf>,
    /// The missing ones that the thread tries next.
    next: BTreeSet<u64>,
    /// Those whose copies are to be removed.
    bad: BTreeSet<u64>,
    /// The one at which the thread is.
    now: Option<u64>,
    ended: bool,
}

/// What the thread does next.
enum Job {
    Copy(u64, PathBuf),
    Remove(u64),
}

impl State {
    fn is_busy(&self) -> bool {
        self.now.is_some() || !self.next.is_empty() || !self.bad.is_empty()
    }

    fn job(&mut self) -> Option<Job> {
        if let Some(step) = self.bad.pop_first() {
            self.now = Some(step);
            return Some(Job::Remove(step));
        }
        while let Some(step) = self.next.pop_first() {
            match self.missing.get(&step).filter(|folder| folder.exists()).cloned() {
                Some(folder) => {
                    self.now = Some(step);
                    return Some(Job::Copy(step, folder));
                }
                // The run has removed it, since it keeps only some.
                None => drop(self.missing.remove(&step)),
            }
        }
        None
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is to be done next, once there is something. `None` at the end.
    fn wait(&self) -> Option<Job> {
        let mut state = self.state();
        loop {
            if state.ended {
                return None;
            }
            if let Some(job) = state.job() {
                return Some(job);
            }
            self.changed.notify_all();
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn work(&self, tell: &Sender<Told>) {
        while let Some(job) = self.wait() {
            let told = match job {
                Job::Copy(step, folder) => self.copy(step, &folder),
                Job::Remove(step) => {
                    let removed = caught(|| checkpoint::remove_copy(&self.store, step));
                    self.state().now = None;
                    removed.err().map(|error| Told { step, result: Err(error) })
                }
            };
            if let Some(told) = told {
                // If nobody hears it, the run is gone.
                let _ = tell.send(told);
            }
            self.changed.notify_all();
        }
    }

    fn copy(&self, step: u64, folder: &std::path::Path) -> Option<Told> {
        let started = Instant::now();
        let copied = caught(|| checkpoint::copy_to(folder, &self.store));
        let mut state = self.state();
        state.now = None;
        if copied.is_ok() {
            state.missing.remove(&step);
            // The store is there, perhaps again: now the others can be copied too.
            state.next = state.missing.keys().copied().collect();
        } else if state.missing.contains_key(&step) {
            // If the store cannot be reached, the others would only wait for it too, one after the other. The
            // newest one is worth it.
            let newest = state.missing.keys().next_back().copied();
            state.next.retain(|step| Some(*step) == newest);
        } else {
            // It was set aside meanwhile.
            return None;
        }
        let result = copied.map(|was_copied| was_copied.then(|| started.elapsed().as_secs_f64()));
        Some(Told { step, result })
    }
}

impl Copying {
    /// Starts the thread.
    ///
    /// # Errors
    /// [`Error::Io`] when the system gives no thread.
    pub(super) fn start(store: Store) -> Result<Self> {
        let (tell, told) = unbounded();
        let url = store.url().to_owned();
        let shared = Arc::new(Shared { store, state: Mutex::default(), changed: Condvar::new() });
        let worker = Arc::clone(&shared);
        let thread = Builder::new().name("copies".to_owned()).spawn(move || worker.work(&tell));
        thread.map_err(Error::io("start a thread that copies to", url))?;
        Ok(Self { shared, told, failure: None })
    }

    /// Where the copies are.
    pub(super) fn url(&self) -> &str {
        self.shared.store.url()
    }

    /// Copies a checkpoint that is whole, and those that could not be copied before.
    pub(super) fn add(&self, step: u64, folder: PathBuf) {
        let mut state = self.shared.state();
        state.missing.insert(step, folder);
        state.next = state.missing.keys().filter(|step| Some(**step) != state.now).copied().collect();
        self.shared.changed.notify_all();
    }

    /// No run should continue from this checkpoint: its copy is removed.
    pub(super) fn remove(&self, step: u64) {
        let mut state = self.shared.state();
        state.missing.remove(&step);
        state.next.remove(&step);
        state.bad.insert(step);
        self.shared.changed.notify_all();
    }

    /// Does something with the checkpoints. It is told which one is being copied, and no other one begins to
    /// be.
    pub(super) fn beside<T>(&self, act: impl FnOnce(Option<u64>) -> T) -> T {
        let state = self.shared.state();
        act(state.now)
    }

    /// What became of copies since it was last asked.
    pub(super) fn hear(&mut self) -> Option<Told> {
        self.told.try_recv().ok()
    }

    /// Keeps why a checkpoint could not be copied.
    pub(super) fn keep(&mut self, failure: Error) {
        self.failure = Some(failure);
    }

    /// Whether the thread has something to do after this time. Returns earlier if it has not.
    pub(super) fn is_busy_after(&self, time: Duration) -> bool {
        let state = self.shared.state();
        let waited = self.shared.changed.wait_timeout_while(state, time, |state| state.is_busy());
        waited.unwrap_or_else(PoisonError::into_inner).0.is_busy()
    }

    /// Refuses an end at which the checkpoint after `last` steps is not in the store.
    pub(super) fn check(&mut self, last: u64) -> Result<()> {
        let missing: Vec<u64> = self.shared.state().missing.keys().copied().collect();
        if !missing.contains(&last) {
            return Ok(());
        }
        let source = self.failure.take().unwrap_or_else(|| Error::other("the run was asked to end at once"));
        let (url, source) = (self.url().to_owned(), Box::new(source));
        Err(StoreError::NotCopied { url, steps: missing, source }.into())
    }
}

impl Drop for Copying {
    fn drop(&mut self) {
        self.shared.state().ended = true;
        self.shared.changed.notify_all();
    }
}
