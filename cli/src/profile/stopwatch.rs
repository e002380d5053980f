//! Times a rank's work: with the host's clock on the CPU, and with the device's clock on a GPU, where the
//! host only queues the work.
//!
//! A device's times are known after it has finished. Waiting for each of them would leave the device idle, as
//! it is never in training. So they are reported when the thread's next step begins.

use std::cell::RefCell;
use std::env;
use std::time::Instant;

use pipewright::stages::devices::BACKWARD_WEIGHT;
use pipewright::stages::{Clock, Device, Error, Result, clock};

use super::observation::{Log, Observation, Sample};

/// How long some work took: seconds, or two marks of the device's clock.
#[derive(Clone, Copy, Debug)]
pub(super) enum Took {
    Seconds(f64),
    Marks([usize; 2]),
}

thread_local! {
    static STOPWATCH: RefCell<Stopwatch> = RefCell::default();
}

/// The clock and the measurements of a rank's thread.
#[derive(Default)]
struct Stopwatch {
    /// Whether this thread reports anything. One shard of a rank does.
    reports: bool,
    /// The clock of the rank's device, if it has one.
    clock: Option<Box<dyn Clock>>,
    step: u64,
    /// Measurements since the step began, with their marks of the clock.
    unreported: Vec<([usize; 2], Sample)>,
}

/// From now on, this thread's work is timed by that device's clock, and reported.
///
/// # Errors
/// When there is no such device, or the clock would miss the gradients of weights, on a stream of their own.
pub(super) fn time_on(device: Device) -> Result<()> {
    if device != Device::Cpu && env::var_os(BACKWARD_WEIGHT).is_some() {
        return Err(Error::new(format!(
            "{BACKWARD_WEIGHT} is set: unset it, because layers whose backward-weight is beside other work \
             cannot be timed one by one"
        )));
    }
    let clock = clock(device)?;
    STOPWATCH
        .with_borrow_mut(|stopwatch| *stopwatch = Stopwatch { reports: true, clock, ..Stopwatch::default() });
    Ok(())
}

/// Begins a step on this thread, unless it has begun. The previous step's times of a device are now known and
/// are sent to the log.
pub(super) fn begin_step(step: u64, log: &Log) -> Result<()> {
    STOPWATCH.with_borrow_mut(|stopwatch| {
        if std::mem::replace(&mut stopwatch.step, step) == step {
            return Ok(());
        }
        let Some(clock) = &mut stopwatch.clock else {
            return Ok(());
        };
        clock.wait()?;
        for ([from, to], sample) in stopwatch.unreported.drain(..) {
            let seconds = clock.seconds(from, to)?;
            send(log, Sample { seconds, ..sample });
        }
        clock.reset();
        Ok(())
    })
}

/// Does some work, or queues it on the device, and times it.
pub(super) fn timed<T>(work: impl FnOnce() -> Result<T>) -> Result<(T, Took)> {
    match mark()? {
        None => {
            let start = Instant::now();
            let done = work()?;
            Ok((done, Took::Seconds(start.elapsed().as_secs_f64())))
        }
        Some(from) => {
            let done = work()?;
            let to = mark()?.unwrap_or(from);
            Ok((done, Took::Marks([from, to])))
        }
    }
}

/// A mark after all queued work, if there is a clock.
fn mark() -> Result<Option<usize>> {
    STOPWATCH.with_borrow_mut(|stopwatch| stopwatch.clock.as_mut().map(|clock| clock.mark()).transpose())
}

/// Reports a measurement of a layer, at once or when its time is known, if this thread reports.
pub(super) fn tell(log: &Log, layer: usize, took: Took, of: Observation) {
    STOPWATCH.with_borrow_mut(|stopwatch| {
        if !stopwatch.reports {
            return;
        }
        let step = stopwatch.step;
        let sample = |seconds| Sample { layer, step, seconds, of };
        match took {
            Took::Seconds(seconds) => send(log, sample(seconds)),
            Took::Marks(marks) => stopwatch.unreported.push((marks, sample(0.0))),
        }
    });
}

fn send(log: &Log, sample: Sample) {
    // If nobody receives, enough has been measured.
    let _ = log.send(sample);
}
