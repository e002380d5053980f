//! The interpreter: runs one rank's actions over its stages and its transport.

mod agreement;
mod bucket_sum;
mod build;
mod checkpoint_io;
mod chunk;
mod evaluation;
mod execution;
mod finish;
mod forwards;
mod meter;
mod new_weights;
mod next;
mod next_tokens;
mod offload;
mod on_gpus;
mod order;
mod outcome;
mod owned;
mod packing;
mod parameters;
mod partials;
mod parts;
mod passes;
mod progress;
mod reduction;
mod replicas;
mod restart;
mod served;
mod server;
mod share;
mod slices;
mod snapshot;
mod stale;
mod staleness;
mod stream;
mod ties;
mod trace;

pub(crate) use forwards::Forwards;
pub use meter::RankReport;
pub(crate) use next_tokens::NextTokens;
pub(crate) use order::StepOrder;
pub(crate) use outcome::{Fault, Outcome, Settled, Totals};
pub(crate) use parameters::Tie;
pub use parameters::{ParameterInfo, Site};
pub(crate) use parts::{MakeLoss, WorkerParts};
pub(crate) use progress::{Progress, Reading, WaitsFor};
pub(crate) use reduction::WINDOW;
pub use restart::Restart;
pub(crate) use restart::Restarts;
pub use staleness::Staleness;
pub(crate) use trace::{Record, timeline};

use std::sync::Arc;

use pipewright_stages::loss::{Loss, Score};
use pipewright_stages::nvtx::Range;
use pipewright_stages::optimizer::Optimizer;
use pipewright_stages::{Shape, Stage, StageBuilder, Together};
use serde::{Deserialize, Serialize};

use crate::checksum::Checksum;
use crate::data::{DataSource, Feed};
use crate::error::{Result, caught};
use crate::fabric::Transport;
use crate::id::{Rank, StageId, WorldRank};
use crate::mesh::{Coordinate, Mesh};
use crate::schedule::{Action, Cell, Flow, Move, Pass, Schedule};
use agreement::Agreement;
use chunk::{Chunk, InFlight, chunk_of};
use execution::Execution;
use meter::Meter;
use reduction::Reduction;
use server::Server;
use share::{Exchanged, Share};

/// How many blocks' memory a rank keeps from step to step.
const SPARE: usize = 64;

/// One rank of a pipeline.
pub(crate) struct Worker<S: Stage> {
    rank: Rank,
    schedule: Arc<Schedule>,
    /// What it moves to the host and back in a step.
    moves: Vec<Move>,
    transport: Box<dyn Transport<S::Wire> + Send>,
    /// Build the rank's stages.
    builders: Vec<(StageId, StageBuilder<S>)>,
    chunks: Vec<Chunk<S>>,
    /// Of each parameter that is frozen and has the weights that its builder makes, their checksum. Empty
    /// without restarts.
    as_built: Vec<Option<Checksum>>,
    /// Makes the loss, on the rank of the last stage.
    make_loss: Option<MakeLoss<S::Wire>>,
    loss: Option<Box<dyn Loss<S::Wire>>>,
    /// By micro-batch. `None`: the device has not reported the score yet.
    scores: Vec<Option<Score>>,
    inputs: Option<Feed>,
    targets: Option<Feed>,
    /// The training data, for steps that are repeated.
    data: Arc<dyn DataSource>,
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
    ties: Arc<[Tie]>,
    /// The stages before this one are frozen: no gradient goes to them.
    first_trained: StageId,
    /// Blocks that have been read. Their memory is used for blocks to send.
    blocks: Vec<Vec<u8>>,
    agreement: Agreement,
    together: Together,
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
    /// How often the rank failed in the step and was built again.
    pub(crate) restarts: Vec<Restart>,
}

impl<S: Stage> Worker<S> {
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
    pub(crate) fn train(&mut self, order: StepOrder) -> Result<Trained> {
        self.run_step(order, None)
    }

    /// As [`Worker::train`], and keeps what comes, so that the step can be repeated.
    ///
    /// # Errors
    /// As for [`Worker::train`].
    pub(crate) fn train_kept(&mut self, order: StepOrder) -> Result<Trained> {
        self.transport.keep(order.call);
        self.run_step(order, None)
    }

    /// Runs a kept step again, with stages that were built again.
    ///
    /// # Errors
    /// As for [`Worker::train`].
    pub(crate) fn repeat(&mut self, order: StepOrder) -> Result<Trained> {
        let data = Arc::clone(&self.data);
        self.run_step(order, Some(data.as_ref()))
    }

    /// How many bytes are kept of steps that may be repeated.
    pub(crate) fn kept(&self) -> u64 {
        self.transport.kept()
    }

    /// No step so far will be repeated.
    pub(crate) fn forget(&mut self) {
        self.transport.forget();
    }

    /// `data`: where micro-batches come from, if not from the loader.
    fn run_step(&mut self, order: StepOrder, data: Option<&dyn DataSource>) -> Result<Trained> {
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
        let mut run = Execution::training(&order, self.share.first(), data);
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
            restarts: Vec::new(),
            trace: self.meter.trace()?,
        })
    }

    /// Runs this rank's actions in order. An error or panic names its action.
    fn run(&mut self, schedule: &Schedule, run: &mut Execution<'_>) -> Result<()> {
        let rank = self.rank;
        let replica = self.shown_replica();
        let progress = Arc::clone(&self.meter.progress);
        progress.begin_step(run.step);
        let result = schedule
            .actions(rank)
            .iter()
            .enumerate()
            .try_for_each(|(index, &action)| {
                progress.begin(index, run.shown(action));
                let _range = Range::begin(format_args!("{}", run.shown(action)));
                caught(|| self.perform(run, action))
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
                self.move_activations(run)?;
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

    /// The rank has done its part of a call.
    pub(crate) fn end_call(&mut self) {
        self.transport.end();
    }

    /// This rank's number in the whole run.
    pub(crate) fn world(&self) -> WorldRank {
        self.transport.rank()
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
