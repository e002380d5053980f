//! What a rank measures of itself during a step.

use std::time::{Duration, Instant};

/// Time spent and memory held by one rank in one step.
#[derive(Debug, Default)]
pub(super) struct Meter {
    started: Option<Instant>,
    waiting: Duration,
    live_bytes: u64,
    peak_bytes: u64,
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
    /// The most bytes of activations held at once: what forward keeps for backward-input, and that for backward-weight.
    pub peak_bytes: u64,
}

impl Meter {
    pub(super) fn start(&mut self) {
        *self = Self {
            started: Some(Instant::now()),
            ..Self::default()
        };
    }

    pub(super) fn wait<T>(&mut self, action: impl FnOnce() -> T) -> T {
        let since = Instant::now();
        let result = action();
        self.waiting += since.elapsed();
        result
    }

    pub(super) fn hold(&mut self, bytes: u64) {
        self.live_bytes += bytes;
        self.peak_bytes = self.peak_bytes.max(self.live_bytes);
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
        }
    }
}
