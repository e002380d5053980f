//! How a step ended. It is the same on all ranks.

use pipewright_stages::loss::Score;
use serde::{Deserialize, Serialize};

use crate::id::{MicroBatch, StageId};

/// How a step ended.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Outcome {
    /// The weights have been updated.
    Updated(Totals),
    /// Nothing was updated: a number is NaN or infinite.
    NotFinite(Fault),
}

/// The step's numbers over all ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Totals {
    /// The sums over all micro-batches, in micro-batch order.
    pub(crate) score: Score,
    /// The global norm of the mean gradient, before clipping.
    pub(crate) grad_norm: f64,
}

/// The first number of a step that is not finite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Fault {
    /// The loss of a micro-batch.
    Loss(MicroBatch),
    /// The gradient of a parameter: the last such parameter in the model, which backward reached first.
    Gradient(StageId, usize),
}
