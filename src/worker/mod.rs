//! The interpreter: runs one rank's actions over its stages and its transport.

mod finish;
mod forward_only;
mod meter;
mod parameters;
mod passes;
mod slot;
mod store;
mod ties;
mod trace;
mod verdict;

pub use meter::RankReport;
pub use parameters::{ParameterInfo, Site};
pub(crate) use ties::Tie;
pub(crate) use trace::{Record, timeline};
pub(crate) use verdict::{Fault, Outcome, Verdict};

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use pipewright_stages::loss::{Loss, Score};
use pipewright_stages::optimizer::Optimizer;
use pipewright_stages::{Device, ErrorKind, Shape, Stage, StageBuilder};
use serde::{Deserialize, Serialize};

use crate::data::Feed;
use crate::error::{Error, Result, panic_message};
use crate::fabric::Transport;
use crate::id::{Rank, StageId, WorldRank};
use crate::mesh::{Coordinate, Mesh};
use crate::schedule::{Action, Cell, Pass, Schedule};
use meter::Meter;
use slot::{InFlight, Slot};
use verdict::Ballots;

/// Everything a rank's thread needs to make its worker. Stages are built there, since they need not be `Send`.
#[allow(missing_debug_implementations, reason = "holds builders, which are closures")]
pub(crate) struct WorkerParts<S: Stage> {
    /// The rank.
    pub(crate) rank: Rank,
    /// The whole pipeline's schedule.
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
    /// Where every rank of the run stands.
    pub(crate) mesh: Mesh,
    /// How weights change.
    pub(crate) optimizer: Arc<dyn Optimizer>,
    /// The largest global gradient norm; a larger gradient is scaled down to it.
    pub(crate) clip: Option<f64>,
}

/// One rank of a pipeline.
pub(crate) struct Worker<S: Stage> {
    rank: Rank,
    schedule: Arc<Schedule>,
    transport: Box<dyn Transport<S::Wire> + Send>,
    slots: Vec<Slot<S>>,
    loss: Option<Box<dyn Loss<S::Wire>>>,
    /// By micro-batch; those that a device has not told yet are missing.
    scores: Vec<Option<Score>>,
    inputs: Option<Feed>,
    targets: Option<Feed>,
    optimizer: Arc<dyn Optimizer>,
    clip: Option<f64>,
    mesh: Mesh,
    ties: Vec<Tie>,
    /// Blocks of other ranks' that have been read: memory for those to be sent.
    blocks: Vec<Vec<u8>>,
    ballots: Ballots,
    meter: Meter,
}

/// What a rank gives for a step.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Trained {
    /// How the step ended, the same on all ranks.
    pub(crate) outcome: Outcome,
    /// What the rank measured of itself.
    pub(crate) report: RankReport,
    /// What it wrote down, when it was asked to.
    pub(crate) trace: Option<Record>,
}

/// The step being run.
#[derive(Clone, Copy, Debug)]
struct Current {
    step: u64,
    learning_rate: f64,
}

impl<S: Stage> Worker<S> {
    /// Builds the stages of a rank.
    ///
    /// # Errors
    /// What a stage's builder reports.
    pub(crate) fn build(parts: WorkerParts<S>) -> Result<Self> {
        check_place(&parts)?;
        let place = parts.mesh.place(parts.transport.rank());
        let micro_batches = parts.schedule.micro_batches();
        let slots = parts
            .stages
            .into_iter()
            .map(|(id, build)| {
                let built = build().and_then(|mut stage| {
                    stage.move_to(place)?;
                    Ok(stage)
                });
                let stage = built.map_err(|error| no_stage(parts.rank, place.device, id, error))?;
                Ok(Slot::new(id, stage, micro_batches))
            })
            .collect::<Result<Vec<_>>>()?;
        let clock = match slots.first() {
            Some(slot) => slot.stage.clock()?,
            None => None,
        };
        Ok(Self {
            rank: parts.rank,
            schedule: parts.schedule,
            transport: parts.transport,
            slots,
            loss: parts.loss,
            scores: vec![None; micro_batches as usize],
            inputs: parts.inputs,
            targets: parts.targets,
            optimizer: parts.optimizer,
            clip: parts.clip,
            mesh: parts.mesh,
            ties: Vec::new(),
            blocks: Vec::new(),
            ballots: Ballots::default(),
            meter: Meter::new(clock),
        })
    }

    /// The shape one of its stages gives for an input shape.
    ///
    /// # Errors
    /// When the stage refuses the shape.
    pub(crate) fn output_shape(&mut self, stage: StageId, input: &Shape) -> Result<Shape> {
        Ok(self.slot(stage).stage.output_shape(input)?)
    }

    /// Whether the loss takes the last stage's output and the data's targets.
    ///
    /// # Errors
    /// When the loss refuses the shapes.
    pub(crate) fn check_loss(&mut self, output: &Shape, target: &Shape) -> Result<()> {
        Ok(self
            .loss
            .as_ref()
            .map_or(Ok(()), |loss| loss.check(output, target))?)
    }

    /// Runs one training step, and writes down its passes and transfers when it is given the instant to count from.
    ///
    /// # Errors
    /// [`Error::Action`] with the first action that failed or panicked.
    pub(crate) fn train(
        &mut self,
        step: u64,
        learning_rate: f64,
        origin: Option<Instant>,
    ) -> Result<Trained> {
        if origin.is_some() {
            // The trace counts from a moment at which the device has nothing to do.
            self.await_devices()?;
        }
        self.meter.start(origin)?;
        if origin.is_some() {
            // And the device's clock begins where the host's is now.
            self.await_devices()?;
        }
        let current = Current { step, learning_rate };
        let mut outcome = None;
        let schedule = Arc::clone(&self.schedule);
        let actions = schedule.actions(self.rank).iter().copied();
        self.run(actions, |worker, action| {
            worker.perform(current, action, &mut outcome)
        })?;
        Ok(Trained {
            outcome: outcome.expect("lowering ends each rank with a step"),
            report: self.meter.report()?,
            trace: self.meter.trace()?,
        })
    }

    /// Runs actions in order; a failure or panic is told with the action it happened in.
    fn run(
        &mut self,
        actions: impl Iterator<Item = Action>,
        mut perform: impl FnMut(&mut Self, Action) -> Result<()>,
    ) -> Result<()> {
        let rank = self.rank;
        for (index, action) in actions.enumerate() {
            catch_unwind(AssertUnwindSafe(|| perform(self, action)))
                .unwrap_or_else(|panic| Err(Error::Panicked(panic_message(panic.as_ref()))))
                .map_err(|error| error.at_action(rank, index, &action))?;
        }
        Ok(())
    }

    fn perform(&mut self, current: Current, action: Action, outcome: &mut Option<Outcome>) -> Result<()> {
        match action {
            Action::Compute(pass, cell) => {
                self.meter.begin_pass()?;
                self.pass(current.step, pass, cell)?;
                self.meter.end_pass(pass, cell)
            }
            Action::Send(flow, cell) => self.send(flow, cell),
            Action::Recv(flow, cell) => {
                let (peer, tag) = self.source(flow, cell);
                self.transport.post_recv(peer, tag)
            }
            // The group of a stage's replicas has one member, so there is nothing to add.
            Action::Reduce(_) => Ok(()),
            Action::Step(stage) => self.step(current, stage, outcome),
        }
    }

    fn pass(&mut self, step: u64, pass: Pass, cell: Cell) -> Result<()> {
        match pass {
            Pass::Forward => self.forward(step, cell),
            Pass::BackwardInput => self.backward_input(cell),
            Pass::BackwardWeight => self.backward_weight(cell),
            Pass::Backward => self.backward(cell),
        }
    }

    /// The rank of this replica and shard that has a place in the pipeline.
    fn world_rank(&self, rank: Rank) -> WorldRank {
        let own = self.mesh.coordinate(self.transport.rank());
        self.mesh.world_rank(Coordinate { rank, ..own })
    }

    fn slot(&mut self, stage: StageId) -> &mut Slot<S> {
        self.slots
            .iter_mut()
            .find(|slot| slot.id == stage)
            .expect("checked: the stage is on this rank")
    }

    fn cell(&mut self, cell: Cell) -> &mut InFlight<S> {
        &mut self.slot(cell.stage).cells[cell.micro_batch.index()]
    }

    /// The same micro-batch at the stage after (`1`) or before (`-1`), when this rank has that stage too.
    fn neighbour(&mut self, cell: Cell, offset: i32) -> Option<&mut InFlight<S>> {
        let stage = StageId(cell.stage.0.wrapping_add_signed(offset));
        let slot = self.slots.iter_mut().find(|slot| slot.id == stage)?;
        Some(&mut slot.cells[cell.micro_batch.index()])
    }
}

impl<S: Stage> std::fmt::Debug for Worker<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker")
            .field("rank", &self.rank)
            .finish_non_exhaustive()
    }
}

/// Refuses an optimizer or loss that does not run where the rank's stages do.
fn check_place<S: Stage>(parts: &WorkerParts<S>) -> Result<()> {
    let device = parts.mesh.place(parts.transport.rank()).device;
    if device == Device::Cpu {
        return Ok(());
    }
    let refuse = |what: &str| {
        Err(Error::Invalid(format!(
            "rank {}: {what} does not run on {device}, only on cpu: take another, or put the rank on the cpu",
            parts.rank
        )))
    };
    if !parts.optimizer.runs_on_gpus() {
        return refuse(&format!("the optimizer {:?}", parts.optimizer));
    }
    match &parts.loss {
        Some(loss) if !loss.runs_on_gpus() => refuse("the loss"),
        _ => Ok(()),
    }
}

fn no_stage(rank: Rank, device: Device, stage: StageId, error: pipewright_stages::Error) -> Error {
    let on = match device {
        Device::Cpu => String::new(),
        device => format!(" on {device}"),
    };
    let what = format!("stage {stage} (rank {rank}) cannot be built{on}");
    match error.kind {
        // Whoever tries several sizes has to know.
        kind @ ErrorKind::OutOfMemory { .. } => Error::Stage(pipewright_stages::Error {
            place: match error.place.as_str() {
                "" => what,
                place => format!("{what}: {place}"),
            },
            kind,
        }),
        _ => Error::Invalid(format!("{what}: {error}")),
    }
}
