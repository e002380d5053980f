//! What a pipeline is made of, as the builder is told.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pipewright_stages::optimizer::{AdamW, LearningRate, Optimizer};
use pipewright_stages::{BuildStage, DType, Place, Shard, Stage, StageBuilder};

use super::recut::cut::Cut;
use crate::actor::{OnStall, StallRules, StallWarning};
use crate::data::DataSource;
use crate::error::Result;
use crate::fabric::{Crew, End, GpuPairs, Peers, Transport, World};
use crate::groups::GradientGroups;
use crate::mesh::{Map, Mesh};
use crate::plan::Replicas;
use crate::privacy::Privacy;
use crate::schedule::Schedule;
use crate::worker::{MakeLoss, Restarts};

/// What a pipeline is made of. A schedule, its stages, a loss and data are required. The rest has defaults. A
/// pipeline that joins its run again is launched again from the same spec.
pub(super) struct Spec<S: Stage> {
    pub(super) schedules: Schedules,
    pub(super) replicas: u32,
    pub(super) shards: u32,
    /// `None`: as many as usual for the replicas.
    pub(super) gradient_groups: Option<u32>,
    pub(super) stages: Vec<SharedBuilder<S>>,
    pub(super) cutter: Option<Cutter<S>>,
    pub(super) loss: Option<Losses<S::Wire>>,
    pub(super) data: Option<Arc<dyn DataSource>>,
    pub(super) optimizer: Arc<dyn Optimizer>,
    pub(super) sharded: bool,
    /// The number format of sums of gradients.
    pub(super) sums: DType,
    pub(super) state_on_host: bool,
    pub(super) sync: SyncMode,
    /// Whether all ranks wait for each other at the end of each step.
    pub(super) barrier: bool,
    pub(super) learning_rate: LearningRate,
    pub(super) clip: Option<f64>,
    pub(super) privacy: Option<Privacy>,
    pub(super) places: Vec<Place>,
    pub(super) map: Map,
    pub(super) pin: bool,
    pub(super) threads_per_rank: usize,
    pub(super) stalls: StallRules,
    pub(super) on_stall: Vec<OnStall>,
    /// Whether and how ranks are built again after a failure.
    pub(super) restarts: Restarts,
    /// Copies a wire. Given with the restarts.
    pub(super) copy: Option<CopyWire<S::Wire>>,
    pub(super) config: String,
    /// `None`: all ranks are in this process.
    pub(super) world: Option<World>,
    /// Given with the world.
    pub(super) connect: Option<Connect<S::Wire>>,
    /// Looks whether the ranks of a process fit into its memory.
    pub(super) fits: Option<Fits>,
    /// `None`: channels.
    pub(super) ends: Option<MakeEnds<S::Wire>>,
}

/// The order of the passes, as it was given.
pub(super) enum Schedules {
    /// Not given.
    Missing,
    /// For all micro-batches of a batch.
    Whole(Schedule),
    /// For each replica's share of the micro-batches.
    OfReplicas(Vec<Schedule>),
}

/// Makes the schedules and the stages of a cut.
pub(super) type Cutter<S> = Arc<dyn Fn(&Cut) -> Result<(Replicas, Vec<StageBuilder<S>>)> + Send + Sync>;

/// Whether the ranks of a process fit into its memory: among these processes, with this cut.
pub(super) type Fits = Arc<dyn Fn(Option<&Crew>, Option<&Cut>) -> Result<()> + Send + Sync>;

/// Gives each rank that needs it what makes its loss.
pub(super) type Losses<W> = Box<dyn Fn() -> MakeLoss<W> + Send>;

/// Copies a wire, for an end that keeps what comes.
pub(super) type CopyWire<W> = fn(&W) -> W;

/// Connects the ranks of all processes, for the wires of the stages.
pub(super) type Connect<W> = fn(World, &Mesh, usize, usize, GpuPairs) -> Result<(Vec<End<W>>, Peers)>;

/// Makes the ends of a single process: see [`PipelineBuilder::ends`](super::PipelineBuilder::ends).
pub(super) type MakeEnds<W> = Box<dyn Fn(&Mesh, usize) -> Ends<W> + Send>;

/// The ends of all ranks of a process, in rank order.
pub(super) type Ends<W> = Vec<Box<dyn Transport<W> + Send>>;

/// Longer than anything in normal training stays where it is. What takes longer has most likely hung.
pub const STALL_LIMIT: Duration = Duration::from_secs(30 * 60);

impl<S: Stage> Spec<S> {
    /// Into how many groups micro-batches are divided.
    pub(super) fn groups(&self) -> u32 {
        self.gradient_groups.unwrap_or_else(|| GradientGroups::usual(self.replicas))
    }

    /// Whether there is a parameter server. With one replica there is nothing to share.
    pub(super) fn is_served(&self) -> bool {
        self.replicas > 1 && self.sync != SyncMode::Reduce
    }

    /// How many steps' updates the weights of a step may lack.
    pub(super) fn max_staleness(&self) -> u32 {
        match self.sync {
            SyncMode::Server { max_staleness } if self.replicas > 1 => max_staleness,
            _ => 0,
        }
    }
}

impl<S: Stage> Default for Spec<S> {
    fn default() -> Self {
        Self {
            schedules: Schedules::Missing,
            replicas: 1,
            shards: 1,
            gradient_groups: None,
            stages: Vec::new(),
            cutter: None,
            loss: None,
            data: None,
            optimizer: Arc::new(AdamW::default()),
            sharded: false,
            sums: DType::F32,
            state_on_host: false,
            sync: SyncMode::default(),
            barrier: true,
            learning_rate: LearningRate::Constant(1e-3),
            clip: None,
            privacy: None,
            places: Vec::new(),
            map: Map::default(),
            pin: true,
            threads_per_rank: 1,
            stalls: StallRules { warning: StallWarning::default(), limit: Some(STALL_LIMIT), looks: None },
            on_stall: Vec::new(),
            restarts: Restarts::default(),
            copy: None,
            config: String::new(),
            world: None,
            connect: None,
            fits: None,
            ends: None,
        }
    }
}

/// How the replicas of a pipeline come to the same weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SyncMode {
    /// A step ends when the gradients of all replicas are added up and the weights are updated.
    #[default]
    Reduce,
    /// The weights are in a parameter server. Each rank of each replica is a shard of it. A replica pushes
    /// its gradients to the shards, and takes new weights from them. The shards update a weight when the
    /// gradients of all replicas have come.
    ///
    /// Li et al., "Scaling distributed machine learning with the parameter server" (OSDI 2014); Ho et al.,
    /// "More effective distributed ML via a stale synchronous parallel parameter server" (NIPS 2013).
    Server {
        /// How many steps' updates the weights with which a replica begins a step may lack.
        /// With 0 the weights are the same, bit for bit, as with [`SyncMode::Reduce`]. With more, they depend
        /// on which replica is early: no two runs are the same.
        max_staleness: u32,
    },
}

/// The ranks use it one after the other, since a builder need not be `Sync`.
pub(super) struct SharedBuilder<S: Stage>(Arc<Mutex<StageBuilder<S>>>);

impl<S: Stage> Clone for SharedBuilder<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S: Stage> SharedBuilder<S> {
    pub(super) fn new(builder: StageBuilder<S>) -> Self {
        Self(Arc::new(Mutex::new(builder)))
    }

    /// What it builds, in words.
    pub(super) fn described(&self) -> String {
        self.describe()
    }

    /// A builder of the same stage, for one rank.
    pub(super) fn for_rank(&self) -> StageBuilder<S> {
        Box::new(self.clone())
    }
}

impl<S: Stage> BuildStage<S> for SharedBuilder<S> {
    fn build(&self) -> pipewright_stages::Result<S> {
        self.build_shard(Shard::WHOLE)
    }

    fn build_shard(&self, shard: Shard) -> pipewright_stages::Result<S> {
        // A builder that panicked has failed the launch already.
        self.0.lock().unwrap_or_else(PoisonError::into_inner).build_shard(shard)
    }

    fn describe(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).describe()
    }
}
