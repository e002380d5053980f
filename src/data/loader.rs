//! A thread that prepares micro-batches while the ranks work: a step ahead, where the source is endless.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use pipewright_stages::Tensor;

use super::DataSource;
use crate::error::{DataError, Error, Result, panic_message};
use crate::id::MicroBatch;

type Item = (u64, MicroBatch, Result<Tensor>);

/// The background thread, and the way to tell it which step comes next. It ends when this is dropped.
#[derive(Debug)]
pub struct Loader {
    steps: Option<Sender<u64>>,
    thread: Option<JoinHandle<()>>,
}

/// Where a rank takes its inputs, or its targets, from.
#[derive(Debug)]
pub struct Feed {
    items: Receiver<Item>,
    /// Items of the step that came before they were asked for.
    early: Vec<Item>,
}

impl Loader {
    /// Starts the thread for a source; gives the feed of inputs and the feed of targets. Micro-batches count from
    /// 0: there is one replica, which takes all of the batch.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start(source: Arc<dyn DataSource>, micro_batches: u32) -> Result<(Self, Feed, Feed)> {
        let (steps, requested) = unbounded();
        // Room for the step that runs, the one after it, and one prepared in vain before a jump.
        let room = 3 * micro_batches as usize;
        let (inputs, input_items) = bounded(room);
        let (targets, target_items) = bounded(room);
        let endless = source.is_endless();
        let produce = move |step| {
            for micro_batch in (0..micro_batches).map(MicroBatch) {
                let (input, target) = match read(source.as_ref(), step, micro_batch) {
                    Ok((input, target)) => (Ok(input), Ok(target)),
                    Err(source) => (
                        Err(failed(step, micro_batch, &source)),
                        Err(failed(step, micro_batch, &source)),
                    ),
                };
                // Ranks that have stopped take nothing any more.
                let _ = inputs.send((step, micro_batch, input));
                let _ = targets.send((step, micro_batch, target));
            }
        };
        let thread = std::thread::Builder::new()
            .name("data loader".to_owned())
            .spawn(move || run(&requested, endless, produce))
            .map_err(|source| DataError::Thread { source })?;
        let loader = Self {
            steps: Some(steps),
            thread: Some(thread),
        };
        Ok((loader, Feed::new(input_items), Feed::new(target_items)))
    }

    /// Says that the ranks begin a step.
    pub fn begin(&self, step: u64) {
        if let Some(steps) = &self.steps {
            // A loader that has ended shows in the feeds.
            let _ = steps.send(step);
        }
    }
}

/// One micro-batch, or why there is none.
fn read(
    source: &dyn DataSource,
    step: u64,
    micro_batch: MicroBatch,
) -> std::result::Result<(Tensor, Tensor), Arc<Error>> {
    let read = catch_unwind(AssertUnwindSafe(|| source.micro_batch(step, micro_batch)));
    read.unwrap_or_else(|panic| {
        Err(Error::Data(DataError::Panicked {
            step,
            micro_batch,
            message: panic_message(panic.as_ref()),
        }))
    })
    .map_err(Arc::new)
}

/// What the rank that takes inputs and the one that takes targets are both told.
fn failed(step: u64, micro_batch: MicroBatch, source: &Arc<Error>) -> Error {
    Error::Data(DataError::Source {
        step,
        micro_batch,
        source: Arc::clone(source),
    })
}

/// Produces each step asked for, unless that was done ahead, and from an endless source the one after it.
fn run(requested: &Receiver<u64>, endless: bool, mut produce: impl FnMut(u64)) {
    let mut ahead = None;
    for step in requested {
        if ahead != Some(step) {
            produce(step);
        }
        if endless {
            produce(step + 1);
            ahead = Some(step + 1);
        }
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        drop(self.steps.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Feed {
    fn new(items: Receiver<Item>) -> Self {
        Self {
            items,
            early: Vec::new(),
        }
    }

    /// Waits for one micro-batch, in any order within a step; those of other steps, prepared before a jump, are dropped.
    ///
    /// # Errors
    /// What the source reported, or [`Error::Stopped`] when the loader has ended.
    pub fn take(&mut self, step: u64, micro_batch: MicroBatch) -> Result<Tensor> {
        self.early.retain(|(at, ..)| *at == step);
        let early = self.early.iter().position(|(_, at, _)| *at == micro_batch);
        if let Some(index) = early {
            return self.early.swap_remove(index).2;
        }
        loop {
            let item = self
                .items
                .recv()
                .map_err(|_| Error::Stopped(": its data loader has ended".to_owned()))?;
            if item.0 == step && item.1 == micro_batch {
                return item.2;
            }
            if item.0 == step {
                self.early.push(item);
            }
        }
    }
}
