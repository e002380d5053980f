//! What a rank measures of itself during a step.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pipewright_stages::{Clock, Tensor};
use serde::{Deserialize, Serialize};

use super::progress::{Progress, WaitsFor};
use super::team::ShardWaits;
use super::trace::{RankTrace, Record};
use crate::data::Feed;
use crate::error::Result;
use crate::id::{MicroBatch, StageId};
use crate::schedule::{Cell, Flow, Pass};

/// Time that one rank spent and memory that it held in one step. Where the device has a clock, that clock
/// times the passes, because the host only queues them.
#[derive(Default)]
pub(super) struct Meter {
    /// What other threads read of this rank's progress.
    pub(super) progress: Arc<Progress>,
    pub(super) clock: Option<Box<dyn Clock>>,
    /// The waits for other shards, if there are several.
    shard_waits: Option<Arc<ShardWaits>>,
    /// Seconds from the origin to the clock's first mark.
    zero: f64,
    /// The clock's mark at which the current pass began.
    began: usize,
    /// The clock's mark at which the previous pass ended.
    ended: usize,
    /// The clock's marks at which each pass began and ended.
    passes: Vec<[usize; 2]>,
    /// The clock's marks between which the device had nothing to do but sums over replicas.
    sums: Vec<[usize; 2]>,
    started: Option<Instant>,
    waiting: Duration,
    reducing: Duration,
    live_bytes: u64,
    peak_bytes: u64,
    /// The bytes held when the current pass began, and the most held since then.
    pass_bytes: u64,
    pass_peak: u64,
    offloaded: u64,
    live_passes: u32,
    in_flight: u32,
    trace: Option<RankTrace>,
}

/// When sums over replicas began.
#[derive(Clone, Copy, Debug)]
pub(super) enum Since {
    /// The clock's mark.
    Mark(usize),
    /// The host's time.
    Host(Instant),
}

/// One rank's share of a step report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RankReport {
    /// Seconds of work.
    pub busy: f64,
    /// Seconds spent waiting for wires, data, other shards, or other ranks at the end of the step.
    pub waiting: f64,
    /// The seconds of `waiting` for other shards of its layers, inside of passes. 0 if there are none.
    pub shard_waiting: f64,
    /// Seconds of sums over replicas that no pass hid: from the rank's last pass until its sums were there,
    /// and, with a sharded optimizer, the exchange of new weights. It includes the waiting for other
    /// replicas. Where sums stay on GPUs, it is the time of the GPU.
    pub reducing: f64,
    /// The idle share of the step as the caller saw it: `1 - busy / seconds`.
    pub bubble: f64,
    /// The most bytes of activations held at once: what forward keeps for backward-input, and what
    /// backward-input keeps for backward-weight. What is offloaded does not count while it is on the host.
    /// What a stage recomputes ([`pipewright_stages::Recompute::Full`]) counts from then until its
    /// backward-input is done.
    pub peak_bytes: u64,
    /// The bytes of activations that went to the host in the step, and came back before they were needed.
    pub offloaded_bytes: u64,
    /// The largest number of micro-batches in flight, over all the rank's stages: forward passes whose
    /// backward-input has not run.
    pub in_flight: u32,
    /// How many earlier steps' updates the rank's weights lacked. 0, unless a parameter server
    /// allows more.
    pub staleness: u32,
}

impl Meter {
    /// A meter for passes on the host, until it has a clock.
    pub(super) fn new(progress: Arc<Progress>, shard_waits: Option<Arc<ShardWaits>>) -> Self {
        Self { progress, shard_waits, ..Self::default() }
    }

    /// A run of a schedule begins. It is traced if `origin`, the instant to count from, is given.
    pub(super) fn start(&mut self, origin: Option<Instant>) -> Result<()> {
        if let Some(clock) = &mut self.clock {
            clock.reset();
            clock.mark()?;
        }
        self.passes.clear();
        self.sums.clear();
        (self.began, self.ended) = (0, 0);
        self.trace = origin.map(|origin| RankTrace::new(origin, self.clock.is_some()));
        self.zero = self.trace.as_ref().map_or(0.0, RankTrace::seconds);
        if let Some(waits) = &self.shard_waits {
            waits.begin(origin.is_some());
        }
        self.started = Some(Instant::now());
        (self.waiting, self.reducing) = (Duration::ZERO, Duration::ZERO);
        (self.live_bytes, self.peak_bytes) = (0, 0);
        (self.pass_bytes, self.pass_peak) = (0, 0);
        (self.offloaded, self.live_passes, self.in_flight) = (0, 0, 0);
        Ok(())
    }

    /// Waits, and counts it as waiting.
    pub(super) fn wait<T>(&mut self, waits: WaitsFor, wait: impl FnOnce() -> Result<T>) -> Result<T> {
        let since = Instant::now();
        let result = self.progress.during(waits, wait);
        self.waiting += since.elapsed();
        self.begin_pass()?;
        result
    }

    /// Takes a micro-batch. If it is not ready yet, the time until then counts as waiting.
    pub(super) fn take(&mut self, feed: &mut Feed, step: u64, micro_batch: MicroBatch) -> Result<Tensor> {
        match feed.poll(step, micro_batch)? {
            Some(tensor) => self.begin_pass().map(|()| tensor),
            None => self.wait(WaitsFor::Data, || feed.take(step, micro_batch)),
        }
    }

    /// A pass begins, or has received what it waited for.
    pub(super) fn begin_pass(&mut self) -> Result<()> {
        (self.pass_bytes, self.pass_peak) = (self.live_bytes, self.live_bytes);
        if let Some(clock) = &mut self.clock {
            self.began = clock.mark()?;
        }
        if let Some(trace) = &mut self.trace {
            trace.begin(self.began);
        }
        Ok(())
    }

    /// The current pass has ended.
    pub(super) fn end_pass(&mut self, pass: Pass, cell: Cell) -> Result<()> {
        if let Some(clock) = &mut self.clock {
            self.ended = clock.mark()?;
            self.passes.push([self.began, self.ended]);
        }
        if let Some(trace) = &mut self.trace {
            let bytes = [self.pass_bytes, self.live_bytes, self.pass_peak];
            trace.end(pass, cell, self.ended, bytes);
        }
        Ok(())
    }

    /// This cell's wire was sent.
    pub(super) fn sent(&mut self, flow: Flow, cell: Cell) {
        if let Some(trace) = &mut self.trace {
            trace.sent(flow, cell, self.ended);
        }
    }

    /// A wire for this cell was taken.
    pub(super) fn taken(&mut self, flow: Flow, cell: Cell) {
        if let Some(trace) = &mut self.trace {
            trace.taken(flow, cell);
        }
    }

    /// So much time went by for sums over replicas, without a pass.
    pub(super) fn reduced(&mut self, time: Duration) {
        self.reducing += time;
    }

    /// The sum of a stage's gradients over its replicas begins.
    pub(super) fn reduction_starts(&mut self, stage: StageId) {
        if let Some(trace) = &mut self.trace {
            trace.reduction_starts(stage);
        }
    }

    /// The sum of a stage's gradients over its replicas is there.
    pub(super) fn reduction_ends(&mut self, stage: StageId) {
        if let Some(trace) = &mut self.trace {
            trace.reduction_ends(stage);
        }
    }

    /// The device has done its passes, and goes on with sums over replicas. Returns the clock's mark, or the
    /// host's time.
    pub(super) fn begin_sums(&mut self) -> Result<Since> {
        match &mut self.clock {
            Some(clock) => Ok(Since::Mark(clock.mark()?)),
            None => Ok(Since::Host(Instant::now())),
        }
    }

    /// The last work for these sums is queued.
    pub(super) fn end_sums(&mut self, since: Since) -> Result<()> {
        match (since, &mut self.clock) {
            (Since::Mark(from), Some(clock)) => self.sums.push([from, clock.mark()?]),
            (Since::Host(since), _) => self.reduced(since.elapsed()),
            (Since::Mark(_), None) => {}
        }
        Ok(())
    }

    /// The device begins with the sum of a stage's gradients over its replicas.
    pub(super) fn sum_starts(&mut self, stage: StageId) -> Result<()> {
        match (&mut self.trace, &mut self.clock) {
            (Some(trace), Some(clock)) => trace.sum_starts(stage, clock.mark()?),
            _ => self.reduction_starts(stage),
        }
        Ok(())
    }

    /// The last work for this sum is queued.
    pub(super) fn sum_ends(&mut self, stage: StageId) -> Result<()> {
        match (&mut self.trace, &mut self.clock) {
            (Some(trace), Some(clock)) => trace.sum_ends(stage, clock.mark()?),
            _ => self.reduction_ends(stage),
        }
        Ok(())
    }

    /// The trace of the step. It waits for a device to finish its passes.
    pub(super) fn trace(&mut self) -> Result<Option<Record>> {
        let mut trace = self.trace.take();
        if let (Some(trace), Some(waits)) = (&mut trace, &self.shard_waits) {
            waits.each(|waits| trace.add_shard_waits(waits));
        }
        if let (Some(trace), Some(clock)) = (&mut trace, &self.clock) {
            trace.set_seconds(|mark| Ok(self.zero + clock.seconds(0, mark)?))?;
        }
        Ok(trace.map(|trace| trace.record))
    }

    /// A forward pass is done; its backward is to come.
    pub(super) fn enter(&mut self) {
        self.live_passes += 1;
        self.in_flight = self.in_flight.max(self.live_passes);
    }

    /// The backward-input of a forward pass is done.
    pub(super) fn leave(&mut self) {
        self.live_passes -= 1;
    }

    pub(super) fn hold(&mut self, bytes: u64) {
        self.live_bytes += bytes;
        self.peak_bytes = self.peak_bytes.max(self.live_bytes);
        self.pass_peak = self.pass_peak.max(self.live_bytes);
    }

    /// So much of what is held goes to the host.
    pub(super) fn offload(&mut self, bytes: u64) {
        self.offloaded += bytes;
    }

    pub(super) fn free(&mut self, bytes: u64) {
        self.live_bytes -= bytes;
    }

    /// The rank's report. It waits for a device to finish its passes. The caller fills in the bubble, because
    /// it knows how long the whole step took.
    pub(super) fn report(&self) -> Result<RankReport> {
        let total = self.started.map_or(Duration::ZERO, |started| started.elapsed());
        let total = total.as_secs_f64();
        let shard_waiting = self.shard_waits.as_ref().map_or(0.0, |waits| waits.time().as_secs_f64());
        let (busy, sums) = match &self.clock {
            Some(clock) => {
                let seconds = |marks: &[[usize; 2]]| {
                    let seconds = marks.iter().map(|[from, to]| clock.seconds(*from, *to));
                    seconds.sum::<std::result::Result<f64, _>>()
                };
                (seconds(&self.passes)?, seconds(&self.sums)?)
            }
            None => ((total - self.waiting.as_secs_f64() - shard_waiting).max(0.0), 0.0),
        };
        Ok(RankReport {
            busy,
            waiting: (total - busy).max(0.0),
            shard_waiting,
            reducing: self.reducing.as_secs_f64() + sums,
            bubble: 0.0,
            peak_bytes: self.peak_bytes,
            offloaded_bytes: self.offloaded,
            in_flight: self.in_flight,
            staleness: 0,
        })
    }
}
