//! What is to be done at once when a rank of another process has stopped.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// What to do when it rings.
type Job = Box<dyn FnOnce() + Send>;

/// Rings when another process, or a rank of one, has stopped. A rank may be held up by its device then, and cannot look into its inbox: what it
/// waits for has to be ended from outside.
#[derive(Clone, Default)]
pub struct Alarm(Arc<Mutex<Vec<Job>>>);

impl Alarm {
    /// Does this when it rings, on a thread of its own. Whoever asks for it looks afterwards whether it has rung before.
    pub fn then(&self, job: impl FnOnce() + Send + 'static) {
        self.jobs(|jobs| jobs.push(Box::new(job)));
    }

    pub(super) fn ring(&self) {
        for job in self.jobs(std::mem::take) {
            // Each for itself: one may hang. Without a thread for it the rank waits until its process ends.
            let _ = thread::Builder::new().name("alarm".to_owned()).spawn(job);
        }
    }

    fn jobs<T>(&self, act: impl FnOnce(&mut Vec<Job>) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl std::fmt::Debug for Alarm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Alarm").finish_non_exhaustive()
    }
}
