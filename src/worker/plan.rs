//! What a run is, once its spec is checked, and what each rank has for itself.

use std::sync::Arc;

use pipewright_stages::loss::Loss;
use pipewright_stages::optimizer::Optimizer;
use pipewright_stages::{Stage, StageBuilder};

use super::progress::Progress;
use super::recovery::Restarts;
use crate::data::{DataSource, Feed};
use crate::fabric::Transport;
use crate::groups::GradientGroups;
use crate::id::StageId;
use crate::mesh::{Axis, Mesh};
use crate::privacy::Privacy;
use crate::schedule::{Placement, Schedule};

/// What all ranks of a run share. It follows from the spec. Only the schedules, and the shape of the mesh,
/// may change while the run lasts.
#[derive(Clone)]
#[allow(missing_debug_implementations, reason = "holds a data source")]
pub(crate) struct Plan {
    /// The lowered schedule of each replica. All have the same placement.
    pub(crate) schedules: Vec<Arc<Schedule>>,
    /// The gradient groups of a batch.
    pub(crate) groups: GradientGroups,
    /// The most replicas that may share them. Some have none where there are fewer micro-batches.
    pub(crate) most_replicas: u32,
    /// Where every rank of the run is.
    pub(crate) mesh: Mesh,
    /// The training data.
    pub(crate) data: Arc<dyn DataSource>,
    /// How weights change.
    pub(crate) optimizer: Arc<dyn Optimizer>,
    /// The largest global gradient norm. A larger gradient is scaled down to it.
    pub(crate) clip: Option<f64>,
    /// Whether sums of gradients are rounded to 16 bits.
    pub(crate) short_sums: bool,
    /// How the gradients of micro-batches are clipped, and the noise that is added, if they are.
    pub(crate) privacy: Option<Privacy>,
    /// Whether each of several replicas updates only its part of the weights.
    pub(crate) divides_updates: bool,
    /// Whether ranks on GPUs keep the optimizer's state on the host.
    pub(crate) state_on_host: bool,
    /// Whether all ranks wait for each other at the end of each step.
    pub(crate) barrier: bool,
    /// If several replicas have a parameter server: how many steps' updates the weights of a step may lack.
    pub(crate) server: Option<u32>,
    /// Whether and how ranks that fail are built again.
    pub(crate) restarts: Restarts,
    /// How many threads a rank has.
    pub(crate) threads: usize,
}

impl Plan {
    /// How many replicas there are.
    pub(crate) fn replicas(&self) -> u32 {
        self.mesh.size(Axis::Data)
    }

    /// Into how many shards each rank of a replica is divided.
    pub(crate) fn shards(&self) -> u32 {
        self.mesh.size(Axis::Tensor)
    }

    /// Whether each replica updates only its part of the weights.
    pub(crate) fn is_sharded(&self) -> bool {
        self.replicas() > 1 && (self.divides_updates || self.server.is_some())
    }

    /// How many steps' updates the weights of a step may lack. 0 if there is one replica.
    pub(crate) fn max_staleness(&self) -> u32 {
        match self.replicas() {
            1 => 0,
            _ => self.server.unwrap_or(0),
        }
    }

    /// Which rank holds which stage, in each replica.
    pub(crate) fn placement(&self) -> &Placement {
        self.schedules[0].placement()
    }
}

/// Makes the loss of a rank.
pub(crate) type MakeLoss<W> = Box<dyn Fn() -> Box<dyn Loss<W>> + Send>;

/// What one rank has for itself. Its own thread builds the stages, since they need not be `Send`.
#[allow(missing_debug_implementations, reason = "holds builders, which are closures")]
pub(crate) struct Seat<S: Stage> {
    /// Its end of the fabric.
    pub(crate) transport: Box<dyn Transport<S::Wire> + Send>,
    /// Makes the loss. Only the rank of the last stage needs one.
    pub(crate) loss: MakeLoss<S::Wire>,
    /// What it has under the first schedule.
    pub(crate) duty: Duty<S>,
    /// Where it writes its progress for other threads.
    pub(crate) progress: Arc<Progress>,
}

/// What a rank has for itself under one schedule.
#[allow(missing_debug_implementations, reason = "holds builders, which are closures")]
pub(crate) struct Duty<S: Stage> {
    /// Its stages.
    pub(crate) stages: Vec<(StageId, StageBuilder<S>)>,
    /// Inputs, on the rank of the first stage.
    pub(crate) inputs: Option<Feed>,
    /// Targets, on the rank of the last stage.
    pub(crate) targets: Option<Feed>,
}
