//! A thread that prepares micro-batches while the ranks work. For an endless source it works one step ahead.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use pipewright_stages::Tensor;

use super::DataSource;
use crate::ended::await_end;
use crate::error::{DataError, Error, Result, panic_message};
use crate::id::MicroBatch;

type Item = (u64, MicroBatch, Result<Tensor>);

/// The background thread. It is told which step comes next, and ends when this is dropped. Dropping waits for
/// its end, but not for long: the source may hang.
#[derive(Debug)]
pub struct Loader {
    steps: Option<Sender<Begun>>,
    thread: Option<JoinHandle<()>>,
}

/// A step that has begun.
struct Begun {
    step: u64,
    /// Whether another step follows it.
    goes_on: bool,
}

/// Where a rank takes its inputs or its targets from.
#[derive(Debug)]
pub struct Feed {
    items: Receiver<Item>,
    /// Items of the current step that came before they were asked for.
    early: Vec<Item>,
}

impl Loader {
    /// Starts the thread for these micro-batches of each step of a source. Returns the feed of inputs and the
    /// feed of targets.
    ///
    /// # Errors
    /// When the system cannot start a thread.
    pub fn start(source: Arc<dyn DataSource>, micro_batches: Range<u32>) -> Result<(Self, Feed, Feed)> {
        let (steps, requested) = unbounded();
        // Room for the current step, the next one, and one that was prepared in vain before a jump.
        let room = 3 * micro_batches.len();
        let (inputs, input_items) = bounded(room);
        let (targets, target_items) = bounded(room);
        let endless = source.is_endless();
        let produce = move |step| {
            for micro_batch in micro_batches.clone().map(MicroBatch) {
                let (input, target) = match read(source.as_ref(), step, micro_batch) {
                    Ok((input, target)) => (Ok(input), Ok(target)),
                    Err(source) => {
                        (Err(failed(step, micro_batch, &source)), Err(failed(step, micro_batch, &source)))
                    }
                };
                // Ranks that have stopped take nothing more.
                let sent = [
                    inputs.send((step, micro_batch, input)).is_ok(),
                    targets.send((step, micro_batch, target)).is_ok(),
                ];
                if !sent.contains(&true) {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new()
            .name("data loader".to_owned())
            .spawn(move || run(&requested, endless, produce))
            .map_err(|source| {
                DataError::because(format!("cannot start the data loader's thread: {source}"), source)
            })?;
        let loader = Self { steps: Some(steps), thread: Some(thread) };
        Ok((loader, Feed::new(input_items), Feed::new(target_items)))
    }

    /// Tells the thread that the ranks begin a step. `goes_on`: another step follows, so its data is read
    /// ahead. An endless source is always read ahead.
    pub fn begin(&self, step: u64, goes_on: bool) {
        if let Some(steps) = &self.steps {
            // If the thread has ended, the feeds report it.
            let _ = steps.send(Begun { step, goes_on });
        }
    }
}

/// Reads one micro-batch.
fn read(
    source: &dyn DataSource,
    step: u64,
    micro_batch: MicroBatch,
) -> std::result::Result<(Tensor, Tensor), Arc<Error>> {
    let read = catch_unwind(AssertUnwindSafe(|| source.micro_batch(step, micro_batch)));
    read.unwrap_or_else(|panic| {
        Err(Error::from(DataError::Panicked { step, micro_batch, message: panic_message(panic.as_ref()) }))
    })
    .map_err(Arc::new)
}

/// The error that both ranks receive, the one for inputs and the one for targets.
fn failed(step: u64, micro_batch: MicroBatch, source: &Arc<Error>) -> Error {
    Error::from(DataError::Source { step, micro_batch, source: Arc::clone(source) })
}

/// Produces each requested step, unless it was produced ahead. Then it produces the following step, if there
/// is one.
fn run(requested: &Receiver<Begun>, endless: bool, mut produce: impl FnMut(u64)) {
    let mut ahead = None;
    for Begun { step, goes_on } in requested {
        if ahead != Some(step) {
            produce(step);
        }
        if endless || goes_on {
            produce(step + 1);
            ahead = Some(step + 1);
        }
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        drop(self.steps.take());
        if let Some(thread) = self.thread.take() {
            // A source that hangs is left alone.
            await_end(thread);
        }
    }
}

impl Feed {
    fn new(items: Receiver<Item>) -> Self {
        Self { items, early: Vec::new() }
    }

    /// One micro-batch of a step, if it is ready. The micro-batches of a step may be taken in any order.
    /// Micro-batches of other steps, which were prepared before a jump, are dropped.
    ///
    /// # Errors
    /// Whatever the source reported.
    pub fn poll(&mut self, step: u64, micro_batch: MicroBatch) -> Result<Option<Tensor>> {
        self.early.retain(|(at, ..)| *at == step);
        let early = self.early.iter().position(|(_, at, _)| *at == micro_batch);
        if let Some(index) = early {
            return self.early.swap_remove(index).2.map(Some);
        }
        while let Ok(item) = self.items.try_recv() {
            if item.0 == step && item.1 == micro_batch {
                return item.2.map(Some);
            }
            if item.0 == step {
                self.early.push(item);
            }
        }
        Ok(None)
    }

    /// Waits for one micro-batch of a step. Otherwise as [`Feed::poll`].
    ///
    /// # Errors
    /// Whatever the source reported, or [`DataError`] when the thread has ended.
    pub fn take(&mut self, step: u64, micro_batch: MicroBatch) -> Result<Tensor> {
        loop {
            if let Some(tensor) = self.poll(step, micro_batch)? {
                return Ok(tensor);
            }
            let item = self.items.recv();
            let item = item.map_err(|_| {
                DataError::new(format!(
                    "the data loader has ended before it gave micro-batch {micro_batch} of step {step}"
                ))
            })?;
            self.early.push(item);
        }
    }
}
