//! How long a rank's work takes: by the host's clock where the host does it, by the device's where the host only puts it in order.
//!
//! A device's times are known once it is done, and waiting for each would leave it without work, as it is in no training: they are
//! told when the thread's next step begins.

use std::cell::RefCell;
use std::time::Instant;

use pipewright_stages::{Clock, Device, Result, clock};

use super::observation::{Log, Observation, Sample};

/// How long some work took: seconds, or from one mark of the device's clock to another.
#[derive(Clone, Copy, Debug)]
pub(super) enum Took {
    Seconds(f64),
    Marks([usize; 2]),
}

thread_local! {
    static STOPWATCH: RefCell<Stopwatch> = RefCell::default();
}

/// What a rank's thread knows of the time.
#[derive(Default)]
struct Stopwatch {
    /// That of the rank's device, where it has one.
    clock: Option<Box<dyn Clock>>,
    step: u64,
    /// What was measured since the step began, and when by the clock.
    untold: Vec<([usize; 2], Sample)>,
}

/// This thread's work is on that device.
pub(super) fn time_on(device: Device) -> Result<()> {
    let clock = clock(device)?;
    STOPWATCH.with_borrow_mut(|stopwatch| stopwatch.clock = clock);
    Ok(())
}

/// A step begins on this thread, unless it has begun: what a device was timed at in the step before is told.
pub(super) fn begin_step(step: u64, log: &Log) -> Result<()> {
    STOPWATCH.with_borrow_mut(|stopwatch| {
        if std::mem::replace(&mut stopwatch.step, step) == step {
            return Ok(());
        }
        let Some(clock) = &mut stopwatch.clock else {
            return Ok(());
        };
        clock.wait()?;
        for ([from, to], sample) in stopwatch.untold.drain(..) {
            let seconds = clock.seconds(from, to)?;
            send(log, Sample { seconds, ..sample });
        }
        clock.reset();
        Ok(())
    })
}

/// Does some work, or gives it to the device, and times it.
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

/// A mark behind all that the device was given, where there is a clock to make it.
fn mark() -> Result<Option<usize>> {
    STOPWATCH.with_borrow_mut(|stopwatch| stopwatch.clock.as_mut().map(|clock| clock.mark()).transpose())
}

/// Tells what was measured of a layer, now or when the time is known.
pub(super) fn tell(log: &Log, layer: usize, took: Took, of: Observation) {
    STOPWATCH.with_borrow_mut(|stopwatch| {
        let step = stopwatch.step;
        let sample = |seconds| Sample {
            layer,
            step,
            seconds,
            of,
        };
        match took {
            Took::Seconds(seconds) => send(log, sample(seconds)),
            Took::Marks(marks) => stopwatch.untold.push((marks, sample(0.0))),
        }
    });
}

fn send(log: &Log, sample: Sample) {
    // Whoever has stopped listening has measured enough.
    let _ = log.send(sample);
}
