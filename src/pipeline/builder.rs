//! The builder of a pipeline.

use std::num::NonZeroU32;
use std::sync::{Arc, Once};
use std::time::Duration;

use pipewright_stages::loss::Loss;
use pipewright_stages::optimizer::{LearningRate, Optimizer};
use pipewright_stages::{DType, Place, Stage, StageBuilder};

use super::recovery::launch_or_join;
use super::recut::cut::Cut;
use super::running::Pipeline;
use super::spec::{Schedules, SharedBuilder, Spec, SyncMode};
use crate::actor::{Look, StallWarning};
use crate::data::{DataSource, Fingerprinted};
use crate::error::Result;
use crate::fabric::{Crew, Transport, WireFrame, World, ends_by_nccl};
use crate::mesh::{Map, Mesh};
use crate::plan::Replicas;
use crate::privacy::Privacy;
use crate::schedule::Schedule;
use crate::situation::Stall;
use crate::worker::Restarts;

/// Describes a pipeline and launches it. A schedule, its stages, a loss and data are required. The rest has
/// defaults.
pub struct PipelineBuilder<S: Stage> {
    spec: Spec<S>,
}

impl<S: Stage> Default for PipelineBuilder<S> {
    fn default() -> Self {
        Self { spec: Spec::default() }
    }
}

impl<S: Stage> Pipeline<S> {
    /// Begins to describe a pipeline.
    pub fn builder() -> PipelineBuilder<S> {
        PipelineBuilder::default()
    }
}

impl<S: Stage> PipelineBuilder<S> {
    /// The schedule: which rank does what, in which order, with all micro-batches of a batch. Only the
    /// checker can make a [`Schedule`], so it is correct. Of several replicas, each runs the passes of its
    /// own micro-batches in this order ([`Schedule::part`]).
    #[must_use]
    pub fn schedule(mut self, schedule: Schedule) -> Self {
        self.spec.schedules = Schedules::Whole(schedule);
        self
    }

    /// A schedule for each replica, instead of [`PipelineBuilder::schedule`]. Each has as many micro-batches
    /// as [`GradientGroups::share`](crate::groups::GradientGroups::share) says, and all have the same
    /// placement.
    #[must_use]
    pub fn replica_schedules(mut self, schedules: Vec<Schedule>) -> Self {
        self.spec.replicas = schedules.len() as u32;
        self.spec.schedules = Schedules::OfReplicas(schedules);
        self
    }

    /// How many copies of the pipeline there are. Each has a share of every batch's micro-batches, and their
    /// gradients are summed. The weights are the same, bit for bit, for any number of replicas with the same
    /// number of [gradient groups](PipelineBuilder::gradient_groups). Default: 1.
    #[must_use]
    pub fn replicas(mut self, replicas: u32) -> Self {
        self.spec.replicas = replicas;
        self
    }

    /// Divides each rank of each replica into this many shards (tensor parallelism): a power of two. Each
    /// has a part of the weights, and a part of the rows of a micro-batch. The weights after a step are the
    /// same, bit for bit, for any number with the same shard groups: see
    /// [`Model::with_shard_groups`](crate::stages::models::Model::with_shard_groups). Default: 1.
    #[must_use]
    pub fn shards(mut self, shards: u32) -> Self {
        self.spec.shards = shards;
        self
    }

    /// Into how many groups a batch's micro-batches are divided, to add up their gradients: see
    /// [`GradientGroups`](crate::groups::GradientGroups). A replica has whole groups. Another number gives
    /// weights with other rounding. So a training that should go on with another number of replicas, with the
    /// same bits, gives the largest of these numbers from its first step on. Default: one for each replica,
    /// rounded up to a power of two ([`GradientGroups::usual`](crate::groups::GradientGroups::usual)).
    #[must_use]
    pub fn gradient_groups(mut self, groups: u32) -> Self {
        self.spec.gradient_groups = Some(groups);
        self
    }

    /// The stages in model order, as many as the schedule has. Each is built on the thread of its rank.
    #[must_use]
    pub fn stages(mut self, stages: Vec<StageBuilder<S>>) -> Self {
        self.spec.stages = stages.into_iter().map(SharedBuilder::new).collect();
        self
    }

    /// How the schedules and the stages of another cut are made, while the model is trained: see
    /// [`Run::replan`](crate::run::Run::replan). The replicas are as many as the cut says, and have the ranks
    /// that follow from its replicas and shards. In all processes all must follow from the cut alone. What
    /// cannot be changed is refused by an error. Default: the pipeline keeps its cut.
    #[must_use]
    pub fn recut_by(
        mut self,
        make: impl Fn(&Cut) -> Result<(Replicas, Vec<StageBuilder<S>>)> + Send + Sync + 'static,
    ) -> Self {
        self.spec.cutter = Some(Arc::new(make));
        self
    }

    /// The loss of the last stage's output. Each replica has a copy.
    #[must_use]
    pub fn loss(mut self, loss: impl Loss<S::Wire> + Clone) -> Self {
        self.spec.loss = Some(Box::new(move || {
            let loss = loss.clone();
            Box::new(move || Box::new(loss.clone()))
        }));
        self
    }

    /// The training data.
    #[must_use]
    pub fn data(mut self, data: Arc<dyn DataSource>) -> Self {
        self.spec.data = Some(Arc::new(Fingerprinted::new(data)));
        self
    }

    /// How weights change. Default: [`AdamW`](pipewright_stages::optimizer::AdamW) with its defaults.
    #[must_use]
    pub fn optimizer(mut self, optimizer: impl Optimizer) -> Self {
        self.spec.optimizer = Arc::new(optimizer);
        self
    }

    /// Whether each replica updates only its part of the weights, and holds only that part of the optimizer's
    /// state. Where ranks do the backwards of their stages one after the other
    /// ([`Schedule::goes_back_by_stage`]), a replica also keeps only that part of the gradients. Rajbhandari
    /// et al., "ZeRO: memory optimizations toward training trillion parameter models" (2020), stages 1 and 2.
    /// The weights are the same, bit for bit. Default: false.
    #[must_use]
    pub fn sharded(mut self, sharded: bool) -> Self {
        self.spec.sharded = sharded;
        self
    }

    /// The number format of sums of gradients. With [`DType::Bf16`], the sum of each gradient group, and each
    /// sum of two such sums, is rounded to 16 bits, and replicas send each other half as many bytes of
    /// gradients. A hash of the number decides whether it is rounded up or down, so that the mean stays. The
    /// weights are the same, bit for bit, for any number of replicas with the same gradient groups; they are
    /// other weights than with the default, [`DType::F32`]. For ranks on the CPU, without a parameter server.
    #[must_use]
    pub fn sums(mut self, format: DType) -> Self {
        self.spec.sums = format;
        self
    }

    /// Whether ranks on GPUs keep the optimizer's state in page-locked memory of the host. An update brings
    /// it to the GPU part by part, and back, through 24 MiB of the GPU's memory. The weights are the same,
    /// bit for bit. It changes nothing for ranks on the CPU. Default: false.
    #[must_use]
    pub fn state_on_host(mut self, on_host: bool) -> Self {
        self.spec.state_on_host = on_host;
        self
    }

    /// How the replicas come to the same weights. Default: [`SyncMode::Reduce`]. A server divides updates and
    /// the optimizer's state among the replicas, as [`PipelineBuilder::sharded`] does, so that need not be
    /// said too. With one replica there is nothing to share, and it changes nothing.
    #[must_use]
    pub fn sync(mut self, sync: SyncMode) -> Self {
        self.spec.sync = sync;
        self
    }

    /// Whether all ranks wait for each other at the end of each step. Without that, a rank updates its
    /// weights, and begins the next step, while other ranks still finish the step before. Schedules whose
    /// ranks end at different times (`zb-2p`, `zb-v`) then have no idle time between two steps that follow
    /// each other ([`Pipeline::steps_until`]). If the gradient has to be clipped, or a number is not finite,
    /// the ranks find out too late, take back two steps, and run them again. So a step begins early only
    /// while nothing is clipped. The weights are the same, bit for bit.
    ///
    /// Without a barrier, each rank keeps a second copy of its trained weights and their optimizer state. All
    /// ranks are on the CPU. Default: true.
    #[must_use]
    pub fn barrier(mut self, barrier: bool) -> Self {
        self.spec.barrier = barrier;
        self
    }

    /// The learning rate of each step. Default: a constant 1e-3.
    #[must_use]
    pub fn learning_rate(mut self, learning_rate: LearningRate) -> Self {
        self.spec.learning_rate = learning_rate;
        self
    }

    /// The largest global norm of the gradient. A larger gradient is scaled down to it. Default: no clipping.
    #[must_use]
    pub fn clip(mut self, norm: f64) -> Self {
        self.spec.clip = Some(norm);
        self
    }

    /// Trains with differential privacy: the gradient of each micro-batch is clipped over all stages and
    /// shards before it is added, and noise is added to the sum. Default: none of it.
    ///
    /// The gradients of all micro-batches of a replica are kept until the end of the step. Ranks are on the
    /// CPU, no weights are stale, no parameter that is trained is tied or a running mean.
    /// [`PipelineBuilder::clip`] then scales the noisy mean gradient.
    #[must_use]
    pub fn privacy(mut self, privacy: Privacy) -> Self {
        self.spec.privacy = Some(privacy);
        self
    }

    /// Each rank's device, and the numbers to compute in there. One place stands for all ranks. Default: the
    /// CPU. Several ranks may share a GPU. Wires go to the device of the rank that receives them.
    #[must_use]
    pub fn places(mut self, places: Vec<Place>) -> Self {
        self.spec.places = places;
        self
    }

    /// Which ranks have consecutive numbers, and so are in one process: the ranks of a pipeline, or the ranks
    /// that hold the same stages in all replicas. Default: [`Map::Pipeline`].
    #[must_use]
    pub fn map(mut self, map: Map) -> Self {
        self.spec.map = map;
        self
    }

    /// How many threads a rank uses inside layers, loss and optimizer. Default: 1. The weights are the same,
    /// bit for bit, for any number. Your own stages can use these threads too:
    /// [`pipewright_stages::threads`].
    #[must_use]
    pub fn threads_per_rank(mut self, threads: usize) -> Self {
        self.spec.threads_per_rank = threads;
        self
    }

    /// Whether each thread of the ranks on the CPU is pinned to a core of its own. This needs at least as
    /// many cores as threads. Default: true.
    #[must_use]
    pub fn pin(mut self, pin: bool) -> Self {
        self.spec.pin = pin;
        self
    }

    /// When a stall is told to those who listen ([`PipelineBuilder::on_stall`]). Default:
    /// [`StallWarning::ByTimes`].
    #[must_use]
    pub fn stall_warning(mut self, warning: StallWarning) -> Self {
        self.spec.stalls.warning = warning;
        self
    }

    /// The longest time for which a rank may stay where it is, or everybody. Default: half an hour. `None`:
    /// no limit.
    ///
    /// If nothing moves for longer, the pipeline stops with
    /// [`CallError::Stalled`](crate::error::CallError::Stalled), which says what all ranks do, and who waits
    /// for whom. A rank that waits for others may do so for as long as any of them moves.
    ///
    /// Where a lost process can be replaced ([`Pipeline::rejoin`](super::Pipeline::rejoin)), one that holds
    /// the others up counts as lost, with [`ProcessLoss::Stalled`](crate::error::ProcessLoss::Stalled), and
    /// only its own pipeline stops with that error.
    #[must_use]
    pub fn stall_limit(mut self, limit: Option<Duration>) -> Self {
        self.spec.stalls.limit = limit;
        self
    }

    /// Adds a listener for stalls. It is called on a thread of its own, while the call that stalls goes on:
    /// once, again after ten times as long, and when ranks move again. Of several processes, the first one
    /// that answers tells it. A [`Run`](crate::run::Run) listens too.
    #[must_use]
    pub fn on_stall(mut self, listener: impl Fn(&Stall) + Send + Sync + 'static) -> Self {
        self.spec.on_stall.push(Arc::new(listener));
        self
    }

    /// Lets another one than a thread of the pipeline look at the ranks: `take` is given what does that. For
    /// tests in virtual time, where it is called a few times a second of that time. Then nobody answers
    /// `SIGUSR1`.
    #[must_use]
    pub fn looked_at_by(mut self, take: impl Fn(Look) + Send + Sync + 'static) -> Self {
        self.spec.stalls.looks = Some(Arc::new(take));
        self
    }

    /// How often a rank that fails in a step is built again: when a stage, the loss, the optimizer or the
    /// data returns an error or panics. Default: 0, a failure ends the training.
    ///
    /// Only the rank that failed is built again. It takes the weights and the optimizer's state of its last
    /// snapshot, and repeats the steps since then with the wires that it received, which are kept. All other
    /// ranks wait, and the training goes on with the same bits as without the failure
    /// ([`StepReport::restarts`](super::StepReport::restarts) tells of it). A rank that has failed once more
    /// than this in one step ends the training, with
    /// [`RestartError::KeepsFailing`](crate::error::RestartError::KeepsFailing).
    ///
    /// A stage that is trained so must depend only on its parameters, its input, the step and the
    /// micro-batch, and its builder must build the same each time. `snapshot_every` is the most steps from
    /// one snapshot to the next. A rank makes one earlier when what it has received since the last one takes
    /// as much memory as a snapshot.
    #[must_use]
    pub fn restarts(mut self, restarts: u32, snapshot_every: NonZeroU32) -> Self
    where
        S::Wire: Clone,
    {
        let snapshot_every = snapshot_every.get();
        self.spec.restarts = Restarts { most: restarts, snapshot_every };
        self.spec.copy = (restarts > 0).then_some(S::Wire::clone);
        self
    }

    /// How to find out whether the ranks of this process fit into its memory. It is asked before the run goes
    /// on with fewer processes ([`Membership::fewest`](crate::fabric::Membership::fewest)), and before a new
    /// cut. It is given the processes, if the run began with several, and the new cut. An error refuses that.
    /// Default: they fit.
    #[must_use]
    pub fn fits(
        mut self,
        fits: impl Fn(Option<&Crew>, Option<&Cut>) -> Result<()> + Send + Sync + 'static,
    ) -> Self {
        self.spec.fits = Some(Arc::new(fits));
        self
    }

    /// The config of the run, as a text that is kept in checkpoints.
    #[must_use]
    pub fn config(mut self, config: String) -> Self {
        self.spec.config = config;
        self
    }

    /// Spreads the ranks over several processes: each process runs equally many consecutive ranks. Default:
    /// all ranks run in this process.
    ///
    /// Every process builds the same pipeline from the same parts and makes the same calls. Each receives the
    /// same results. Both parts and calls are compared, and a difference is an error in all processes.
    ///
    /// A process builds only the stages of its own ranks. So stages are compared by their descriptions
    /// ([`BuildStage::describe`](pipewright_stages::BuildStage::describe)): what a closure does inside is not
    /// compared. Two processes that build one parameter are refused. A parameter that none builds is not
    /// missed, but [`Pipeline::parameters`] lists the parameters of all processes.
    #[must_use]
    pub fn world(mut self, world: World) -> Self
    where
        S::Wire: WireFrame,
    {
        self.spec.world = Some(world);
        self.spec.connect = Some(ends_by_nccl);
        self.spec.ends = None;
        self
    }

    /// Connects the ranks by these ends, and not by channels. All ranks are in this process. `connect` is
    /// given where every rank stands, and how many wires and blocks can be on the way to one at once. It
    /// returns an end for each rank, in rank order. For a fabric of your own, and for tests of what a fabric
    /// may do ([`fabric::connect_by`](crate::fabric::connect_by)).
    #[must_use]
    pub fn ends(
        mut self,
        connect: impl Fn(&Mesh, usize) -> Vec<Box<dyn Transport<S::Wire> + Send>> + Send + 'static,
    ) -> Self {
        self.spec.ends = Some(Box::new(connect));
        self.spec.world = None;
        self
    }

    /// Starts the ranks, builds the stages on them, and checks that they fit together.
    ///
    /// # Errors
    /// * [`LaunchError`](crate::error::LaunchError) when something is missing, the system cannot start a
    ///   thread, a stage cannot be built, or two parameters have one name. Also when a stage refuses the
    ///   shape of the previous stage's output: the error names the stage, its rank and the layer.
    /// * [`FabricError::Refused`](crate::error::FabricError::Refused) when processes differ. It names the
    ///   first part that differs.
    ///
    /// An error in one process is reported in all.
    pub fn launch(self) -> Result<Pipeline<S>> {
        warn_when_not_optimized();
        launch_or_join(self.spec)
    }
}

/// Warns once that training will be slow, if Pipewright was compiled without optimisation.
fn warn_when_not_optimized() {
    static SAID: Once = Once::new();
    if !pipewright_stages::IS_OPTIMIZED {
        SAID.call_once(|| {
            eprintln!(
                "pipewright is compiled without optimisation: training takes hundreds of times as long. Run \
                 with --release, or write opt-level = 3 into the section [profile.dev.package.\"*\"] of \
                 Cargo.toml"
            );
        });
    }
}

impl<S: Stage> std::fmt::Debug for PipelineBuilder<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PipelineBuilder").field("stages", &self.spec.stages.len()).finish_non_exhaustive()
    }
}
