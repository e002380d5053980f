//! What a rank is told of a step before it begins.

use std::time::Instant;

use crate::fabric::Call;

/// What a rank is told of a step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StepOrder {
    /// The call that the step begins, unless weights may be stale: then it goes on with the call of an
    /// earlier step.
    pub(crate) call: Call,
    /// The step, from 0.
    pub(crate) step: u64,
    /// Its learning rate.
    pub(crate) learning_rate: f64,
    /// The instant from which a trace counts. `None`: no trace.
    pub(crate) trace_from: Option<Instant>,
    /// Whether to ask all ranks to end.
    pub(crate) asks: bool,
}
