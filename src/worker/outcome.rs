//! How a step ended. It is the same on all ranks.

use pipewright_stages::loss::Score;
use serde::{Deserialize, Serialize};

use super::staleness::Staleness;
use crate::id::{MicroBatch, StageId};

/// How a step ended.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[expect(clippy::large_enum_variant, reason = "there is one in a step")]
pub(crate) enum Outcome {
    /// The weights have been updated.
    Updated(Totals),
    /// Nothing was updated: a number is NaN or infinite.
    NotFinite(Fault),
}

/// What a rank tells when no weight is stale any more.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Settled {
    /// How the steps ended that no step has reported. It is the same on all ranks.
    pub(crate) unreported: Vec<Outcome>,
    /// How stale the rank's weights were since the last settlement.
    pub(crate) staleness: Staleness,
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
