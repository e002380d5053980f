//! What ends the waits of a rank that cannot look into its inbox.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

type Job = Box<dyn FnOnce() + Send>;

/// Goes off when another process, or a rank of one, has stopped. A rank may be inside of a call to its device
/// then, where it cannot look into its inbox: what it waits for has to be ended from another thread.
#[derive(Clone, Default)]
pub struct Alarm(Arc<Mutex<Vec<Job>>>);

impl Alarm {
    /// Does this when the alarm goes off, on a thread of its own. An alarm that went off earlier does not do
    /// it: so the caller looks afterwards whether a peer has stopped.
    pub fn then(&self, job: impl FnOnce() + Send + 'static) {
        self.jobs(|jobs| jobs.push(Box::new(job)));
    }

    pub(super) fn go_off(&self) {
        for job in self.jobs(std::mem::take) {
            // Each on a thread of its own, because one may hang. Without a thread for it the rank waits until
            // its process ends.
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
