//! The interpreter: runs one rank's actions over its stages and its transport.

use std::collections::HashMap;
use std::sync::Arc;

use pipewright_stages::loss::{Loss, Score};
use pipewright_stages::nvtx::Range;
use pipewright_stages::{Borders, Mode, Shape, Stage, StageBuilder, Together};
use serde::{Deserialize, Serialize};

use super::chunk::{Chunk, InFlight, chunk_of};
use super::execution::{Execution, StepRequest};
use super::finish::agreement::{Agreement, StepOutcome};
use super::finish::open_step::OpenStep;
use super::meter::{Meter, RankReport};
use super::parameters::Tie;
use super::plan::{MakeLoss, Plan};
use super::private::Clipping;
use super::recovery::Restart;
use super::strategy::{Lending, ReplicaShare, Strategy};
use super::team::{Shared, TeamEnd, outer};
use super::trace::Record;
use crate::checksum::Checksum;
use crate::data::{DataSource, Feed};
use crate::error::{Result, caught};
use crate::fabric::Transport;
use crate::id::{Rank, StageId, WorldRank};
use crate::mesh::Coordinate;
use crate::schedule::{Action, Cell, Flow, Move, Pass, Schedule};

/// How many blocks' memory a rank keeps from step to step.
const SPARE: usize = 64;

/// One rank of a pipeline.
pub(crate) struct Worker<S: Stage> {
    pub(super) plan: Arc<Plan>,
    /// This rank's coordinate in the mesh.
    pub(super) at: Coordinate,
    /// The schedule of its replica.
    pub(super) schedule: Arc<Schedule>,
    /// What it moves to the host and back in a step.
    pub(super) moves: Vec<Move>,
    pub(super) transport: Box<dyn Transport<S::Wire> + Send>,
    /// The transport, if its shards have ever used it too.
    pub(super) shared: Option<Shared<S::Wire>>,
    /// The whole weights that the first shard has gathered, by stage and place in it, until they are hashed.
    pub(super) gathered: HashMap<(StageId, usize), Vec<f32>>,
    /// The other shards of the rank, if there are several.
    pub(super) team: Option<TeamEnd>,
    /// Where the documents of micro-batches begin, for the stages. `None` if no data has said so yet.
    pub(super) borders: Option<Borders>,
    /// Build the rank's stages.
    pub(super) builders: Vec<(StageId, StageBuilder<S>)>,
    pub(super) chunks: Vec<Chunk<S>>,
    /// The checksum of each parameter that is frozen and still has the weights that its builder made. Empty
    /// without restarts.
    pub(super) as_built: Vec<Option<Checksum>>,
    pub(super) make_loss: MakeLoss<S::Wire>,
    /// On the rank of the last stage.
    pub(super) loss: Option<Box<dyn Loss<S::Wire>>>,
    /// By micro-batch. `None`: the device has not reported the score yet.
    pub(super) scores: Vec<Option<Score>>,
    pub(super) inputs: Option<Feed>,
    pub(super) targets: Option<Feed>,
    /// This rank's replica among the others.
    pub(super) share: ReplicaShare,
    /// How the replicas come to the same weights.
    pub(super) strategy: Strategy,
    pub(super) lending: Lending,
    pub(super) ties: Arc<[Tie]>,
    /// The stages before this one are frozen: no gradient goes to them.
    pub(super) first_trained: StageId,
    /// Blocks that have been read. Their memory is used for blocks to send.
    pub(super) blocks: Vec<Vec<u8>>,
    pub(super) agreement: Agreement,
    pub(super) open_step: OpenStep,
    pub(super) clipping: Clipping,
    pub(super) together: Together,
    pub(super) meter: Meter,
}

/// One rank's results of a step.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Trained {
    /// How the step ended, the same on all ranks. `None`: they have not agreed yet.
    pub(crate) outcome: Option<StepOutcome>,
    /// What the rank tells the others of a step on which they have not agreed: see [`outcome_of`].
    ///
    /// [`outcome_of`]: super::agreement::outcome_of
    pub(crate) told: Vec<u8>,
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
    /// Tells the shards the rows of a micro-batch with this input.
    pub(super) fn see_rows_of(&self, input: &Shape) {
        if let Some(team) = &self.team {
            team.team().set_rows(outer(input));
        }
    }

    /// The output shape of one of the rank's stages for an input shape, if the first stage's input is
    /// `first`.
    ///
    /// # Errors
    /// When the stage refuses the shape.
    pub(crate) fn output_shape(&mut self, stage: StageId, input: &Shape, first: &Shape) -> Result<Shape> {
        self.see_rows_of(first);
        let output = self.chunk(stage).stage.output_shape(input);
        self.see_rows_of(&self.plan.data.shapes().0);
        Ok(output?)
    }

    /// Checks that the loss takes the last stage's output and the data's targets.
    ///
    /// # Errors
    /// When the loss refuses the shapes.
    pub(crate) fn check_loss(&mut self, output: &Shape, target: &Shape) -> Result<()> {
        Ok(self.loss.as_ref().map_or(Ok(()), |loss| loss.check(output, target))?)
    }

    /// Runs one training step.
    ///
    /// # Errors
    /// [`crate::Error::Action`] with the first action that failed or panicked.
    pub(crate) fn train(&mut self, request: StepRequest) -> Result<Trained> {
        match self.plan.barrier {
            true => self.run_step(request, None, None),
            false => self.train_without_barrier(request),
        }
    }

    ///
    /// `data`: where micro-batches come from, if not from the loader. `known`: how the step has to end, if
    /// the ranks have agreed on that.
    pub(super) fn run_step(
        &mut self,
        request: StepRequest,
        data: Option<&dyn DataSource>,
        known: Option<StepOutcome>,
    ) -> Result<Trained> {
        let origin = request.trace_from;
        self.begin_step(request.call, request.step)?;
        self.tell_step_before()?;
        let staleness = self.strategy.count_staleness(&self.share);
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
        let mut run = Execution { known, ..Execution::training(&request, self.share.first(), data) };
        self.run(&schedule, &mut run)?;
        // A replica may receive more blocks than it sends.
        self.blocks.truncate(SPARE);
        Ok(Trained {
            outcome: run.outcome,
            told: match run.outcome {
                Some(_) => Vec::new(),
                None => self.agreement.told().to_vec(),
            },
            report: RankReport { staleness, ..self.meter.report()? },
            asked: run.asked || (run.asks && !self.plan.barrier),
            restarts: Vec::new(),
            trace: self.meter.trace()?,
        })
    }

    /// Runs this rank's actions in order. An error or panic names its action.
    pub(super) fn run(&mut self, schedule: &Schedule, run: &mut Execution<'_>) -> Result<()> {
        let rank = self.at.rank;
        let name = self.name();
        let progress = Arc::clone(&self.meter.progress);
        progress.begin_step(run.step);
        let result = schedule.actions(rank).iter().enumerate().try_for_each(|(index, &action)| {
            progress.begin(index, run.shown(action));
            let _range = Range::begin(format_args!("{}", run.shown(action)));
            caught(|| self.perform(run, action))
                .map_err(|error| match &self.team {
                    Some(team) => team.cause(error),
                    None => error,
                })
                .map_err(|error| error.at_action(name, index, &run.shown(action)))
        });
        progress.end();
        result
    }

    fn perform(&mut self, run: &mut Execution<'_>, action: Action) -> Result<()> {
        if self.strategy.is_serving() {
            self.serve()?;
        }
        match action {
            Action::Compute(pass, cell) => {
                self.move_activations(run)?;
                if matches!(pass, Pass::Backward | Pass::BackwardWeight) && cell.stage >= self.first_trained {
                    self.make_gradients_whole(cell.stage)?;
                }
                self.meter.begin_pass()?;
                self.pass(run, pass, cell)?;
                self.meter.end_pass(pass, run.in_batch(cell))
            }
            Action::Send(Flow::Gradient, cell) if cell.stage <= self.first_trained => Ok(()),
            Action::Recv(Flow::Gradient, cell) if cell.stage < self.first_trained => Ok(()),
            Action::Send(flow, cell) => self.send(run, flow, cell),
            Action::Recv(flow, cell) => self.announce(run, flow, cell),
            Action::Reduce(stage) => self.reduce(stage),
            Action::Step(stage) => self.step(run, stage),
        }
    }

    fn pass(&mut self, run: &mut Execution<'_>, pass: Pass, cell: Cell) -> Result<()> {
        // The tokens of a text are of no source.
        if let Some(team) = self.team.as_ref().filter(|_| run.next.is_none()) {
            let source = run.source.unwrap_or(self.plan.data.as_ref());
            self.see_rows_of(&source.shapes_of(run.step, run.micro_batch(cell)).0);
            if run.mode == Mode::Train {
                team.team().check_rows()?;
            }
        }
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

    /// The world rank of a pipeline rank, in this worker's replica and shard.
    pub(super) fn world_rank(&self, rank: Rank) -> WorldRank {
        self.plan.mesh.world_rank(Coordinate { rank, ..self.at })
    }

    pub(super) fn chunk(&mut self, stage: StageId) -> &mut Chunk<S> {
        chunk_of(&mut self.chunks, stage)
    }

    pub(super) fn cell(&mut self, cell: Cell) -> &mut InFlight<S> {
        &mut self.chunk(cell.stage).cells[cell.micro_batch.index()]
    }

    /// The same micro-batch at the next stage (`1`) or the previous one (`-1`), if this rank has that stage
    /// too.
    pub(super) fn neighbour(&mut self, cell: Cell, offset: i32) -> Option<&mut InFlight<S>> {
        let stage = StageId(cell.stage.0.wrapping_add_signed(offset));
        let chunk = self.chunks.iter_mut().find(|chunk| chunk.id == stage)?;
        Some(&mut chunk.cells[cell.micro_batch.index()])
    }
}

impl<S: Stage> std::fmt::Debug for Worker<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker").field("rank", &self.at.rank).finish_non_exhaustive()
    }
}
