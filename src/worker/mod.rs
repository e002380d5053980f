//! The interpreter: runs one rank's actions over its stages and its transport.

mod addends;
mod agreement;
mod chunk;
mod evaluation;
mod execution;
mod finish;
mod forwards;
mod meter;
mod new_weights;
mod next;
mod next_tokens;
mod on_gpus;
mod order;
mod outcome;
mod owned;
mod packing;
mod parameters;
mod partials;
mod passes;
mod progress;
mod reduction;
mod replicas;
mod served;
mod server;
mod share;
mod slices;
mod stale;
mod staleness;
mod store;
mod stream;
mod ties;
mod trace;

pub(crate) use forwards::Forwards;
pub use meter::RankReport;
pub(crate) use next_tokens::NextTokens;
pub(crate) use order::Order;
pub(crate) use outcome::{Fault, Outcome, Settled, Totals};
pub(crate) use parameters::Tie;
pub use parameters::{ParameterInfo, Site};
pub(crate) use progress::{Progress, Reading, WaitsFor};
pub(crate) use reduction::WINDOW;
pub use staleness::Staleness;
pub(crate) use trace::{Record, timeline};

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use pipewright_stages::loss::{Loss, Score};
use pipewright_stages::optimizer::Optimizer;
use pipewright_stages::{DType, Device, Place, Shape, Stage, StageBuilder};
use serde::{Deserialize, Serialize};

use crate::data::Feed;
use crate::error::{CpuOnly, Error, LaunchError, Result, panic_message};
use crate::fabric::Transport;
use crate::groups::Groups;
use crate::id::{Rank, StageId, WorldRank};
use crate::mesh::{Axis, Coordinate, Mesh};
use crate::schedule::{Action, Cell, Flow, Pass, Schedule};
use agreement::Agreement;
use chunk::{Chunk, InFlight, chunk_of};
use execution::Execution;
use meter::Meter;
use reduction::Reduction;
use server::Server;
use share::{Exchanged, Share};

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
    pub(crate) loss: Option<Box<dyn Loss<S::Wire>>>,
    /// Inputs, on the rank of the first stage.
    pub(crate) inputs: Option<Feed>,
    /// Targets, on the rank of the last stage.
    pub(crate) targets: Option<Feed>,
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

impl<S: Stage> WorkerParts<S> {
    /// The rank's replica, if there are several: for messages.
    fn replica(&self) -> Option<u32> {
        let at = self.mesh.coordinate(self.transport.rank());
        (self.mesh.size(Axis::Data) > 1).then_some(at.replica)
    }
}

/// How many blocks' memory a rank keeps from step to step.
const SPARE: usize = 64;

/// One rank of a pipeline.
pub(crate) struct Worker<S: Stage> {
    rank: Rank,
    schedule: Arc<Schedule>,
    transport: Box<dyn Transport<S::Wire> + Send>,
    chunks: Vec<Chunk<S>>,
    loss: Option<Box<dyn Loss<S::Wire>>>,
    /// By micro-batch. `None`: the device has not reported the score yet.
    scores: Vec<Option<Score>>,
    inputs: Option<Feed>,
    targets: Option<Feed>,
    optimizer: Arc<dyn Optimizer>,
    clip: Option<f64>,
    mesh: Mesh,
    /// The sums over replicas, for each stage. None if there is one replica.
    reductions: Vec<Reduction>,
    /// How far the exchange of new weights has come, by replica.
    exchanged: Vec<Exchanged>,
    /// This rank's coordinate in the mesh.
    at: Coordinate,
    /// This rank's replica among the others.
    share: Share,
    /// Whether this replica updates only its part of the weights.
    sharded: bool,
    /// Of how many steps the updates may be missing in the weights of a step.
    max_staleness: u32,
    /// While weights may be stale.
    server: Option<Server>,
    /// Whether all replicas have the same schedule.
    alike: bool,
    /// Whether sums over replicas stay on GPUs.
    on_gpus: bool,
    ties: Vec<Tie>,
    /// The stages before this one are frozen: no gradient goes to them.
    first_trained: StageId,
    /// Blocks that have been read. Their memory is used for blocks to send.
    blocks: Vec<Vec<u8>>,
    agreement: Agreement,
    meter: Meter,
}

/// One rank's results of a step.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Trained {
    /// How the step ended, the same on all ranks.
    pub(crate) outcome: Outcome,
    /// What the rank measured of itself.
    pub(crate) report: RankReport,
    /// The trace, if one was asked for.
    pub(crate) trace: Option<Record>,
    /// Whether a rank asked all to end, in the step of the outcome.
    pub(crate) asked: bool,
}

impl<S: Stage> Worker<S> {
    /// Builds the stages of a rank.
    ///
    /// # Errors
    /// Whatever a stage's builder returns.
    pub(crate) fn build(parts: WorkerParts<S>) -> Result<Self> {
        let replica = parts.replica();
        check_place(&parts)?;
        let at = parts.mesh.coordinate(parts.transport.rank());
        let place = parts.mesh.place(parts.transport.rank());
        let micro_batches = parts.schedule.micro_batches();
        let chunks = parts
            .stages
            .into_iter()
            .map(|(id, builder)| {
                let stage = build_stage(builder, place).map_err(|source| LaunchError::Unbuildable {
                    stage: id,
                    replica,
                    rank: parts.rank,
                    device: place.device,
                    source,
                })?;
                Ok(Chunk::new(id, stage, micro_batches.max(parts.schedule.stages())))
            })
            .collect::<Result<Vec<_>>>()?;
        let clock = match chunks.first() {
            Some(chunk) => chunk.stage.clock()?,
            None => None,
        };
        Ok(Self {
            rank: parts.rank,
            schedule: parts.schedule,
            transport: parts.transport,
            chunks,
            loss: parts.loss,
            scores: vec![None; micro_batches as usize],
            inputs: parts.inputs,
            targets: parts.targets,
            optimizer: parts.optimizer,
            clip: parts.clip,
            at,
            share: Share::new(parts.groups, &parts.mesh, parts.mesh.world_rank(at)),
            sharded: parts.sharded,
            max_staleness: parts.max_staleness,
            server: None,
            alike: parts.alike,
            on_gpus: false,
            mesh: parts.mesh,
            reductions: Vec::new(),
            exchanged: Vec::new(),
            ties: Vec::new(),
            first_trained: StageId(0),
            blocks: Vec::new(),
            agreement: Agreement::default(),
            meter: Meter::new(clock, parts.progress),
        })
    }

    /// The output shape of one of the rank's stages for an input shape.
    ///
    /// # Errors
    /// When the stage refuses the shape.
    pub(crate) fn output_shape(&mut self, stage: StageId, input: &Shape) -> Result<Shape> {
        Ok(self.chunk(stage).stage.output_shape(input)?)
    }

    /// Checks that the loss takes the last stage's output and the data's targets.
    ///
    /// # Errors
    /// When the loss refuses the shapes.
    pub(crate) fn check_loss(&mut self, output: &Shape, target: &Shape) -> Result<()> {
        Ok(self
            .loss
            .as_ref()
            .map_or(Ok(()), |loss| loss.check(output, target))?)
    }

    /// Runs one training step.
    ///
    /// # Errors
    /// [`Error::Action`] with the first action that failed or panicked.
    pub(crate) fn train(&mut self, order: Order) -> Result<Trained> {
        let origin = order.trace_from;
        self.begin_step(order.call, order.step)?;
        let staleness = self.count_staleness();
        if origin.is_some() {
            // The trace counts from an instant at which the device has no work.
            self.await_devices()?;
        }
        self.meter.start(origin)?;
        if origin.is_some() {
            // The device's clock must begin at that instant too.
            self.await_devices()?;
        }
        let schedule = Arc::clone(&self.schedule);
        let mut run = Execution::training(&order, self.share.first());
        self.run(&schedule, &mut run)?;
        // A replica may receive more blocks than it sends.
        self.blocks.truncate(SPARE);
        Ok(Trained {
            outcome: run.outcome.expect("lowering ends each rank with a step"),
            report: RankReport {
                staleness,
                ..self.meter.report()?
            },
            asked: run.asked,
            trace: self.meter.trace()?,
        })
    }

    /// Runs this rank's actions in order. An error or panic names its action.
    fn run(&mut self, schedule: &Schedule, run: &mut Execution<'_>) -> Result<()> {
        let rank = self.rank;
        let replica = (self.share.replicas() > 1).then_some(self.share.replica);
        let progress = Arc::clone(&self.meter.progress);
        let result = schedule
            .actions(rank)
            .iter()
            .enumerate()
            .try_for_each(|(index, &action)| {
                progress.begin(index, run.shown(action));
                catch_unwind(AssertUnwindSafe(|| self.perform(run, action)))
                    .unwrap_or_else(|panic| Err(Error::Panicked(panic_message(panic.as_ref()))))
                    .map_err(|error| error.at_action(replica, rank, index, &run.shown(action)))
            });
        progress.end();
        result
    }

    fn perform(&mut self, run: &mut Execution<'_>, action: Action) -> Result<()> {
        if self.server.is_some() {
            self.serve()?;
        }
        match action {
            Action::Compute(pass, cell) => {
                self.meter.begin_pass()?;
                self.pass(run, pass, cell)?;
                self.meter.end_pass(pass, run.in_batch(cell))
            }
            Action::Send(Flow::Gradient, cell) if cell.stage <= self.first_trained => Ok(()),
            Action::Recv(Flow::Gradient, cell) if cell.stage < self.first_trained => Ok(()),
            Action::Send(flow, cell) => self.send(run, flow, cell),
            Action::Recv(flow, cell) => self.announce(run, flow, cell),
            Action::Reduce(stage) => self.start_reduction(stage),
            Action::Step(stage) => self.step(run, stage),
        }
    }

    fn pass(&mut self, run: &mut Execution<'_>, pass: Pass, cell: Cell) -> Result<()> {
        match pass {
            Pass::Forward => self.forward(run, cell),
            _ if cell.stage < self.first_trained => Ok(()),
            Pass::BackwardInput => self.backward_input(run, cell),
            Pass::BackwardWeight => self.backward_weight(run, cell),
            Pass::Backward => self.backward(run, cell),
        }
    }

    /// The world rank of a pipeline rank, in this worker's replica and shard.
    fn world_rank(&self, rank: Rank) -> WorldRank {
        self.mesh.world_rank(Coordinate { rank, ..self.at })
    }

    fn chunk(&mut self, stage: StageId) -> &mut Chunk<S> {
        chunk_of(&mut self.chunks, stage)
    }

    fn cell(&mut self, cell: Cell) -> &mut InFlight<S> {
        &mut self.chunk(cell.stage).cells[cell.micro_batch.index()]
    }

    /// The same micro-batch at the next stage (`1`) or the previous one (`-1`), if this rank has that stage
    /// too.
    fn neighbour(&mut self, cell: Cell, offset: i32) -> Option<&mut InFlight<S>> {
        let stage = StageId(cell.stage.0.wrapping_add_signed(offset));
        let chunk = self.chunks.iter_mut().find(|chunk| chunk.id == stage)?;
        Some(&mut chunk.cells[cell.micro_batch.index()])
    }
}

impl<S: Stage> std::fmt::Debug for Worker<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker")
            .field("rank", &self.rank)
            .finish_non_exhaustive()
    }
}

/// Builds a stage and moves it to where it computes.
fn build_stage<S: Stage>(builder: StageBuilder<S>, place: Place) -> pipewright_stages::Result<S> {
    let mut stage = builder.build()?;
    stage.move_to(place)?;
    Ok(stage)
}

/// Refuses an optimizer or a loss that cannot run on the rank's device, or in its numbers.
fn check_place<S: Stage>(parts: &WorkerParts<S>) -> Result<()> {
    let Place { device, dtype } = parts.mesh.place(parts.transport.rank());
    let (replica, rank) = (parts.replica(), parts.rank);
    if device == Device::Cpu {
        return match &parts.loss {
            Some(loss) if dtype == DType::Bf16 && !loss.runs_on_gpus() => {
                Err(LaunchError::LossInF32Only { replica, rank }.into())
            }
            _ => Ok(()),
        };
    }
    let refuse = |what| {
        Err(LaunchError::NotOnDevice {
            replica,
            rank,
            what,
            device,
        }
        .into())
    };
    if !parts.optimizer.runs_on_gpus() {
        return refuse(CpuOnly::Optimizer(format!("{:?}", parts.optimizer)));
    }
    match &parts.loss {
        Some(loss) if !loss.runs_on_gpus() => refuse(CpuOnly::Loss),
        _ => Ok(()),
    }
}
