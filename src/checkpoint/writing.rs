//! The thread that writes a checkpoint while the next steps run.

use std::path::Path;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TryRecvError, bounded};

use super::write::Written;
use crate::error::{Error, Result, panic_message};

/// How often a wait asks whether it should go on.
const LOOK: Duration = Duration::from_millis(100);

/// A checkpoint that a thread writes. Dropping it waits for the thread. If it is not known by then what other
/// processes have written, the checkpoint is given up, and nothing is left of it.
#[derive(Debug)]
pub struct Writing {
    own: Receiver<Result<Vec<Written>>>,
    /// What this process has written, once it is known.
    written: Option<Vec<Written>>,
    /// Until the other processes have told.
    others: Option<Sender<Vec<Written>>>,
    ended: Receiver<Result<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Writing {
    /// Starts the thread. It calls `write`, which writes what this process has. When it is told what others
    /// have written, it calls `end` with what all have.
    ///
    /// # Errors
    /// [`Error::Io`] when the system gives no thread.
    pub fn start(
        place: &Path,
        write: impl FnOnce() -> Result<Vec<Written>> + Send + 'static,
        end: impl FnOnce(Vec<Written>) -> Result<()> + Send + 'static,
    ) -> Result<Self> {
        let (tell_own, own) = bounded(1);
        let (others, hear_others) = bounded(1);
        let (tell_end, ended) = bounded(1);
        let job = move || {
            let written = write();
            let all = written.as_ref().ok().cloned();
            // If nobody hears it, the pipeline is gone.
            let _ = tell_own.send(written);
            if let Some(mut all) = all
                && let Ok(others) = hear_others.recv()
            {
                all.extend(others);
                let _ = tell_end.send(end(all));
            }
        };
        let thread = Builder::new().name("checkpoint".to_owned()).spawn(job);
        let thread = thread.map_err(Error::io("start a thread that writes", place))?;
        Ok(Self { own, written: None, others: Some(others), ended, thread: Some(thread) })
    }

    /// What this process has written. `None` if it is not on the disk yet. With `keep_waiting` it waits for
    /// that, and asks it every tenth of a second whether to go on.
    ///
    /// # Errors
    /// Whatever the writing failed with; [`Error::Panicked`]; the error of `keep_waiting`.
    pub fn own(&mut self, keep_waiting: Option<&dyn Fn() -> Result<()>>) -> Result<Option<Vec<Written>>> {
        if self.written.is_none() {
            let own = self.own.clone();
            self.written = self.hear(&own, keep_waiting)?;
        }
        Ok(self.written.clone())
    }

    /// Tells the thread what the other processes have written. They have no other part in the end.
    pub fn tell_others(&mut self, written: Vec<Written>) {
        if let Some(others) = self.others.take() {
            // If the thread has panicked, `has_ended` tells it.
            let _ = others.send(written);
        }
    }

    /// Whether the checkpoint is in its place. With `keep_waiting` it waits for that.
    ///
    /// # Errors
    /// As for [`Writing::own`].
    pub fn has_ended(&mut self, keep_waiting: Option<&dyn Fn() -> Result<()>>) -> Result<bool> {
        let ended = self.ended.clone();
        Ok(self.hear(&ended, keep_waiting)?.is_some())
    }

    /// Does not wait for the thread any more: it may hang with the disk.
    pub fn leave(mut self) {
        drop(self.thread.take());
    }

    fn hear<T>(
        &mut self,
        from: &Receiver<Result<T>>,
        keep_waiting: Option<&dyn Fn() -> Result<()>>,
    ) -> Result<Option<T>> {
        let Some(keep_waiting) = keep_waiting else {
            return match from.try_recv() {
                Ok(told) => told.map(Some),
                Err(TryRecvError::Empty) => Ok(None),
                Err(TryRecvError::Disconnected) => Err(self.panicked()),
            };
        };
        loop {
            match from.recv_timeout(LOOK) {
                Ok(told) => return told.map(Some),
                Err(RecvTimeoutError::Timeout) => keep_waiting()?,
                Err(RecvTimeoutError::Disconnected) => return Err(self.panicked()),
            }
        }
    }

    /// The thread ends without a word only by a panic.
    fn panicked(&mut self) -> Error {
        let panic = self.thread.take().and_then(|thread| thread.join().err());
        Error::Panicked(panic.map_or_else(String::new, |panic| panic_message(panic.as_ref())))
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        self.others = None;
        if let Some(thread) = self.thread.take() {
            // A panic was told, or nobody asked.
            let _ = thread.join();
        }
    }
}
