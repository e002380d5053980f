//! How a worker is made, and its stages are built: at launch, and again after a failure.

use std::collections::HashMap;
use std::sync::Arc;

use pipewright_stages::optimizer::{Optimizer, StateFormat};
use pipewright_stages::{
    Borders, DType, Device, Parameter, Pieces, Place, Shard, Stage, StageBuilder, Together, starting_at_zero,
};

use super::Worker;
use super::chunk::Chunk;
use super::finish::agreement::Agreement;
use super::finish::open_step::OpenStep;
use super::meter::Meter;
use super::parameters::Built;
use super::plan::{Duty, Plan, Seat};
use super::private::Clipping;
use super::strategy::{Lending, ReplicaShare, Strategy};
use super::team::{self, TeamEnd};
use crate::error::{LaunchError, Result};
use crate::id::{MicroBatch, StageId};
use crate::mesh::RankName;
use crate::schedule::Schedule;

impl<S: Stage> Worker<S> {
    /// Makes a worker and builds its stages.
    ///
    /// # Errors
    /// Whatever a stage's builder returns.
    pub(crate) fn build(plan: Arc<Plan>, seat: Seat<S>) -> Result<Self> {
        let rank = seat.transport.rank();
        let at = plan.mesh.coordinate(rank);
        let schedule = Arc::clone(&plan.schedules[at.replica as usize]);
        let (mut transport, mut shared) = (seat.transport, None);
        let team = team::team(&mut transport, &mut shared, &plan, &seat.progress)?;
        let shard_waits = team.as_ref().map(TeamEnd::waits);
        let mut worker = Self {
            lending: Lending::new(&plan),
            share: ReplicaShare::new(&plan, rank),
            plan,
            at,
            moves: schedule.moves(at.rank),
            schedule,
            transport,
            shared,
            team,
            gathered: HashMap::new(),
            borders: None,
            builders: seat.duty.stages,
            chunks: Vec::new(),
            as_built: Vec::new(),
            make_loss: seat.loss,
            loss: None,
            scores: Vec::new(),
            inputs: seat.duty.inputs,
            targets: seat.duty.targets,
            strategy: Strategy::Alone,
            ties: Arc::default(),
            first_trained: StageId(0),
            blocks: Vec::new(),
            agreement: Agreement::default(),
            open_step: OpenStep::default(),
            clipping: Clipping::default(),
            together: Together::default(),
            meter: Meter::new(seat.progress, shard_waits),
        };
        worker.build_stages()?;
        Ok(worker)
    }

    /// Builds the stages again, after a failure in the middle of a step. All that the rank had of the step is
    /// dropped. The weights are the initial ones, until [`Worker::restore`].
    ///
    /// # Errors
    /// Whatever a stage's builder returns.
    pub(crate) fn build_again(&mut self) -> Result<()> {
        self.rebuild()?;
        self.join_replicas();
        Ok(())
    }

    /// Goes on by the schedules and in the shape of another plan, and builds other stages in place of the
    /// rank's own, between two steps. Their weights are the initial ones, or zeros, until [`Worker::take`].
    /// `has_blocks`: whether parameters of the model take few bits, and are what their builders make.
    ///
    /// # Errors
    /// Whatever a stage's builder returns. Then the rank has no stages, until this is called again.
    pub(crate) fn recut(&mut self, plan: Arc<Plan>, duty: Duty<S>, has_blocks: bool) -> Result<Built> {
        let rank = self.transport.rank();
        self.at = plan.mesh.coordinate(rank);
        self.share = ReplicaShare::new(&plan, rank);
        self.schedule = Arc::clone(&plan.schedules[self.at.replica as usize]);
        self.moves = self.schedule.moves(self.at.rank);
        self.team = team::team(&mut self.transport, &mut self.shared, &plan, &self.meter.progress)?;
        self.plan = plan;
        self.builders = duty.stages;
        (self.inputs, self.targets) = (duty.inputs, duty.targets);
        self.ties = Arc::default();
        self.first_trained = StageId(0);
        self.gathered.clear();
        match self.plan.restarts.most {
            0 if !has_blocks => starting_at_zero(|| self.rebuild())?,
            0 => self.rebuild()?,
            // What a rank is built with again is compared with what its builder makes.
            _ => {
                self.rebuild()?;
                self.sum_frozen()?;
            }
        }
        self.built()
    }

    /// Drops the stages, and all that the rank had of a step, and builds them anew.
    fn rebuild(&mut self) -> Result<()> {
        // Before the new stages are built, so that there is memory for them.
        self.chunks.clear();
        self.blocks.clear();
        self.lending = Lending::new(&self.plan);
        self.strategy = Strategy::Alone;
        self.agreement = Agreement::default();
        self.together = Together::default();
        let shard_waits = self.team.as_ref().map(TeamEnd::waits);
        self.meter = Meter::new(Arc::clone(&self.meter.progress), shard_waits);
        self.build_stages()
    }

    fn build_stages(&mut self) -> Result<()> {
        let has_loss = self.schedule.rank_of(self.schedule.last_stage()) == self.at.rank;
        self.loss = has_loss.then(|| (self.make_loss)());
        self.check_place()?;
        let micro_batches = self.schedule.micro_batches();
        let cells = micro_batches.max(self.schedule.stages());
        self.scores = vec![None; micro_batches as usize];
        let place = self.plan.mesh.place(self.transport.rank());
        self.borders = self.plan.data.documents(0, MicroBatch(0))?.map(|_| Borders::default());
        for (id, builder) in &self.builders {
            let shard = Shard { index: self.at.shard, of: self.plan.shards() };
            let stage = build_stage(builder, place, shard, self.team.as_ref(), self.borders.as_ref());
            let stage = stage.and_then(|stage| with_possible_state(stage, &*self.plan.optimizer));
            let stage = match (self.plan.privacy, self.plan.short_sums) {
                (None, false) => stage,
                (Some(_), _) => stage.and_then(|stage| without_running_means(stage, NOT_PRIVATE)),
                (None, true) => stage.and_then(|stage| without_running_means(stage, ROUNDED)),
            };
            let mut stage = stage.map_err(|source| LaunchError::Unbuildable {
                stage: *id,
                at: self.name(),
                device: place.device,
                source,
            })?;
            if self.plan.state_on_host {
                stage.visit_gradients(&mut Parameter::keep_state_on_host);
            }
            self.chunks.push(Chunk::new(*id, stage, cells, self.plan.short_sums));
        }
        self.join_loss()?;
        self.defer_head();
        let names = self.chunks.iter().map(|chunk| (chunk.id, chunk.stage.layer_names()));
        self.meter.progress.name_layers(names.collect());
        self.meter.clock = match self.chunks.first() {
            Some(chunk) => chunk.stage.clock()?,
            None => None,
        };
        Ok(())
    }

    /// Divides the loss among the shards, on the rank of the last stage.
    fn join_loss(&mut self) -> Result<()> {
        let (Some(team), Some(loss), Some(chunk)) = (&self.team, &mut self.loss, self.chunks.last()) else {
            return Ok(());
        };
        let joined = match chunk.stage.divided_output() {
            Some(outputs) => loss.join(team.team(), outputs),
            None => Err(pipewright_stages::Error::other(
                "the last layer's outputs are not divided among the shards: see \
                 `Linear::with_divided_outputs`",
            )),
        };
        let refuse = |source| LaunchError::Unbuildable {
            stage: chunk.id,
            at: self.name(),
            device: self.plan.mesh.place(self.transport.rank()).device,
            source,
        };
        Ok(joined.map_err(refuse)?)
    }

    /// Lets the last stage defer its head, where it then has some rows at a time.
    fn defer_head(&mut self) {
        let takes_rows = self.loss.as_ref().is_some_and(|loss| loss.takes_rows());
        let device = self.plan.mesh.place(self.transport.rank()).device;
        if takes_rows && may_defer_head(&self.schedule, device) {
            let rows = self.plan.data.shapes().1.count();
            self.chunks
                .last_mut()
                .expect("the rank of the loss has the last stage")
                .defer_head(rows, self.plan.short_sums);
        }
    }

    /// The rank's name, for messages.
    pub(super) fn name(&self) -> RankName {
        self.plan.mesh.name(self.transport.rank())
    }

    /// Refuses an optimizer or a loss that cannot run on the rank's device, or in its numbers.
    fn check_place(&self) -> Result<()> {
        let Place { device, dtype } = self.plan.mesh.place(self.transport.rank());
        let name = self.name();
        if device == Device::Cpu {
            return match &self.loss {
                Some(loss) if dtype == DType::Bf16 && !loss.runs_on_gpus() => Err(LaunchError::new(format!(
                    "{name}: the loss takes numbers of f32 only: take another, or set dtype to f32"
                ))
                .into()),
                _ => Ok(()),
            };
        }
        let refuse = |what: &str| {
            Err(LaunchError::new(format!(
                "{name}: {what} does not run on {device}, only on cpu: take another, or put the rank on the \
                 cpu"
            ))
            .into())
        };
        if !self.plan.optimizer.runs_on_gpus() {
            return refuse(&format!("the optimizer {:?}", self.plan.optimizer));
        }
        match &self.loss {
            Some(loss) if !loss.runs_on_gpus() => refuse("the loss"),
            _ => Ok(()),
        }
    }
}

/// Whether the last stage may defer its head to the backward, under this schedule, on this device: see
/// [`Stage::defer_head`].
///
/// What the head adds to gradients must be in micro-batch order, like all gradients. On the CPU a whole
/// backward must also follow the forward at once. Otherwise the head's forward could have run while the rank
/// waits for others, or its backward-weight could. On a GPU a head that has some rows at a time has other
/// bits, so as many schedules as possible defer it.
pub fn may_defer_head(schedule: &Schedule, device: Device) -> bool {
    match device {
        Device::Cpu => schedule.goes_back_at_once(schedule.last_stage()),
        Device::Cuda(_) => schedule.goes_back_in_turn(schedule.last_stage()),
    }
}

/// The stage, unless the optimizer keeps blocks of numbers and a parameter is divided into groups for shards:
/// groups do not end where blocks end.
fn with_possible_state<S: Stage>(mut stage: S, optimizer: &dyn Optimizer) -> pipewright_stages::Result<S> {
    let states = optimizer.states("", &[1]);
    if states.iter().any(|tensor| tensor.format == StateFormat::Blocks) {
        stage.try_visit_parameters(&mut |parameter| match parameter.pieces() {
            Pieces::Even(_) => Ok(()),
            Pieces::Rows(_) => {
                let error = "the optimizer keeps its state in blocks, and this parameter is divided into \
                             groups for shards: set `AdamW::state` (`optimizer.state`) to \"bf16\" or \
                             \"f32\", or have one group (`pipeline.shard_groups`)";
                Err(pipewright_stages::Error::other(error).at(parameter.name()))
            }
        })?;
    }
    Ok(stage)
}

/// What is said of a running mean where training is private.
const NOT_PRIVATE: &str = "it is a running mean of what the layer sees, as batch norm has: it is neither \
                           clipped nor noisy, so the training would not be private; take layers without \
                           running means, or leave out `.privacy(...)` (`privacy.clip`)";

/// What is said of a running mean where sums are rounded.
const ROUNDED: &str = "this running mean would be rounded in each step: leave sums in f32 \
                       (`PipelineBuilder::sums`, `pipeline.sums`)";

/// The stage, if it has no running mean.
fn without_running_means<S: Stage>(mut stage: S, why: &'static str) -> pipewright_stages::Result<S> {
    stage.try_visit_parameters(&mut |parameter| match parameter.is_frozen()
        || parameter.running_share().is_none()
    {
        true => Ok(()),
        false => Err(pipewright_stages::Error::other(why).at(parameter.name())),
    })?;
    Ok(stage)
}

/// Builds a stage and moves it to where it computes.
#[allow(clippy::borrowed_box, reason = "a builder is a box")]
fn build_stage<S: Stage>(
    builder: &StageBuilder<S>,
    place: Place,
    shard: Shard,
    team: Option<&TeamEnd>,
    borders: Option<&Borders>,
) -> pipewright_stages::Result<S> {
    let mut stage = builder.build_shard(shard)?;
    stage.move_to(place)?;
    if let Some(team) = team {
        stage.join(team.team())?;
    }
    if let Some(borders) = borders {
        stage.keep_apart(borders)?;
    }
    Ok(stage)
}
