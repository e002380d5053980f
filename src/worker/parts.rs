//! What a worker is made from.

use std::sync::Arc;

use pipewright_stages::loss::Loss;
use pipewright_stages::optimizer::Optimizer;
use pipewright_stages::{Stage, StageBuilder};

use super::progress::Progress;
use crate::data::{DataSource, Feed};
use crate::fabric::Transport;
use crate::groups::Groups;
use crate::id::{Rank, StageId};
use crate::mesh::Mesh;
use crate::schedule::Schedule;

/// Makes the loss of a rank.
pub(crate) type MakeLoss<W> = Box<dyn Fn() -> Box<dyn Loss<W>> + Send>;

/// Everything that a rank's thread needs to make its worker. That thread builds the stages, since they need
/// not be `Send`.
#[allow(missing_debug_implementations, reason = "holds builders, which are closures")]
pub(crate) struct WorkerParts<S: Stage> {
    /// The rank.
    pub(crate) rank: Rank,
    /// The schedule of this rank's replica.
    pub(crate) schedule: Arc<Schedule>,
    /// This rank's end of the fabric.
    pub(crate) transport: Box<dyn Transport<S::Wire> + Send>,
    /// This rank's stages.
    pub(crate) stages: Vec<(StageId, StageBuilder<S>)>,
    /// The loss, on the rank of the last stage.
    pub(crate) loss: Option<MakeLoss<S::Wire>>,
    /// Inputs, on the rank of the first stage.
    pub(crate) inputs: Option<Feed>,
    /// Targets, on the rank of the last stage.
    pub(crate) targets: Option<Feed>,
    /// The training data, for steps that are repeated.
    pub(crate) data: Arc<dyn DataSource>,
    /// Where every rank of the run is.
    pub(crate) mesh: Mesh,
    /// The gradient groups of a batch.
    pub(crate) groups: Groups,
    /// Whether each replica updates only its part of the weights.
    pub(crate) sharded: bool,
    /// Of how many steps the updates may be missing in the weights of a step. 0 if there is one replica.
    pub(crate) max_staleness: u32,
    /// Whether all replicas have the same schedule.
    pub(crate) alike: bool,
    /// How weights change.
    pub(crate) optimizer: Arc<dyn Optimizer>,
    /// The largest global gradient norm. A larger gradient is scaled down to it.
    pub(crate) clip: Option<f64>,
    /// Where the rank writes its progress for other threads.
    pub(crate) progress: Arc<Progress>,
}
