//! What a rank measures of itself during a step.

use std::time::{Duration, Instant};

use super::trace::{RankTrace, Record};
use crate::schedule::{Cell, Flow, Pass};

/// Time spent and memory held by one rank in one step.
#[derive(Debug, Default)]
pub(super) struct Meter {
    started: Option<Instant>,
    waiting: Duration,
    live_bytes: u64,
    peak_bytes: u64,
    /// The peak since the pass before.
    pass_peak: u64,
    live_passes: u32,
    in_flight: u32,
    trace: Option<RankTrace>,
}

/// One rank's share of a step report.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RankReport {
    /// Seconds of work.
    pub busy: f64,
    /// Seconds spent waiting for wires, data or other ranks at the end of the step.
    pub waiting: f64,
    /// The idle share of the step as the caller saw it: `1 - busy / seconds`.
    pub bubble: f64,
    /// The most bytes of activations held at once: what forward keeps for backward-input, and that for backward-weight. What a
    /// stage makes again ([`pipewright_stages::Recompute::Full`]) counts from there until its backward-input is done.
    pub peak_bytes: u64,
    /// The most forward passes at once whose backward-input was still to come: micro-batches in flight, over all the rank's stages.
    pub in_flight: u32,
}

impl Meter {
    /// A step begins, to be traced when there is an instant to count from.
    pub(super) fn start(&mut self, origin: Option<Instant>) {
        *self = Self {
            started: Some(Instant::now()),
            trace: origin.map(RankTrace::new),
            ..Self::default()
        };
    }

    pub(super) fn wait<T>(&mut self, action: impl FnOnce() -> T) -> T {
        let since = Instant::now();
        let result = action();
        self.waiting += since.elapsed();
        self.begin_pass();
        result
    }

    /// A pass begins, or has what it waited for.
    pub(super) fn begin_pass(&mut self) {
        if let Some(trace) = &mut self.trace {
            trace.begin();
        }
    }

    /// The pass that began has ended.
    pub(super) fn end_pass(&mut self, pass: Pass, cell: Cell) {
        if let Some(trace) = &mut self.trace {
            trace.end(pass, cell, [self.live_bytes, self.pass_peak]);
        }
        self.pass_peak = self.live_bytes;
    }

    /// This cell's wire is handed over.
    pub(super) fn sent(&mut self, flow: Flow, cell: Cell) {
        if let Some(trace) = &mut self.trace {
            trace.sent(flow, cell);
        }
    }

    /// A wire for this cell has been taken up.
    pub(super) fn taken(&mut self, flow: Flow, cell: Cell) {
        if let Some(trace) = &mut self.trace {
            trace.taken(flow, cell);
        }
    }

    /// What was written down of the step.
    pub(super) fn trace(&mut self) -> Option<Record> {
        self.trace.take().map(|trace| trace.record)
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

    pub(super) fn free(&mut self, bytes: u64) {
        self.live_bytes -= bytes;
    }

    /// The rank's report; the bubble is filled in by whoever knows how long the whole step took.
    pub(super) fn report(&self) -> RankReport {
        let total = self.started.map_or(Duration::ZERO, |started| started.elapsed());
        let waiting = self.waiting.as_secs_f64();
        RankReport {
            busy: total.as_secs_f64() - waiting,
            waiting,
            bubble: 0.0,
            peak_bytes: self.peak_bytes,
            in_flight: self.in_flight,
        }
    }
}
