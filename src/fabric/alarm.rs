//! Ends the waits of a rank that cannot look into its inbox.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

type Job = Box<dyn FnOnce() + Send>;

/// Goes off when another process, or one of its ranks, has stopped. At that moment a rank may be inside a
/// call to its device, where it cannot look into its inbox. Then another thread must end that call.
#[derive(Clone, Default)]
pub struct Alarm(Arc<Mutex<Vec<Job>>>);

impl Alarm {
    /// Runs this job, on a thread of its own, when the alarm goes off. If it has gone off already, the job
    /// does not run. So the caller must check afterwards whether a peer has stopped.
    pub fn then(&self, job: impl FnOnce() + Send + 'static) {
        self.jobs(|jobs| jobs.push(Box::new(job)));
    }

    pub(super) fn go_off(&self) {
        for job in self.jobs(std::mem::take) {
            // Each job has a thread of its own, because one may hang. If the system cannot start a thread,
            // the rank waits until its process ends.
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
