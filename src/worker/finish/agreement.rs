//! What all ranks agree on at the end of a step: loss, gradient norm, and whether they are finite.

use pipewright_stages::loss::Score;
use pipewright_stages::optimizer::{Update, clip_factor};
use serde::{Deserialize, Serialize};

use crate::error::{FabricError, Result};
use crate::fabric::{Gathered, Transport, all_gather};
use crate::groups::{Node, Sums};
use crate::id::{MicroBatch, StageId, WorldRank};
use crate::worker::plan::Plan;

/// How a step ended, the same on all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[expect(clippy::large_enum_variant, reason = "there is one in a step")]
pub(crate) enum StepOutcome {
    /// The weights have been updated.
    Updated(StepTotals),
    /// Nothing was updated: a number is NaN or infinite.
    NotFinite(Fault),
}

/// What a rank does at the end of a step.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one in a step")]
pub(in crate::worker) enum Ending {
    /// It updates its weights.
    Update(StepTotals),
    /// It drops its gradients.
    Discard,
}

impl From<StepOutcome> for Ending {
    fn from(outcome: StepOutcome) -> Self {
        match outcome {
            StepOutcome::Updated(totals) => Self::Update(totals),
            StepOutcome::NotFinite(_) => Self::Discard,
        }
    }
}

/// The step's numbers over all ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct StepTotals {
    /// The sums over all micro-batches, in micro-batch order in each gradient group; a tree adds the groups.
    pub(crate) score: Score,
    /// What the sum of the gradients is divided by: the weight of the batch, or with differential privacy
    /// the number of its micro-batches.
    pub(crate) divisor: f64,
    /// The global norm of the mean gradient, before clipping.
    pub(crate) grad_norm: f64,
}

impl StepTotals {
    /// What the gradient is multiplied by, so that it is not too large. 1: it is not.
    pub(crate) fn clip_factor(&self, plan: &Plan) -> f64 {
        plan.clip.map_or(1.0, |limit| clip_factor(self.grad_norm, limit))
    }

    /// The update with this number.
    pub(in crate::worker) fn update(&self, plan: &Plan, step: u64, learning_rate: f64) -> Update {
        Update {
            step,
            learning_rate,
            scale: if self.divisor > 0.0 { self.clip_factor(plan) / self.divisor } else { 0.0 },
            micro_batches: plan.groups.micro_batches(),
        }
    }
}

/// The first number of a step that is not finite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Fault {
    /// The loss of a micro-batch.
    Loss(MicroBatch),
    /// The gradient of a parameter: the last such parameter in the model, which backward reached first.
    Gradient(StageId, usize),
}

/// One value that a rank sends to all others.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[expect(
    clippy::large_enum_variant,
    reason = "no list holds entries: they are bytes, read one after the other"
)]
enum Entry {
    /// From a rank of the last stage: the loss of some gradient groups of the batch.
    Loss(Node, GroupScore),
    /// The squared gradient of a parameter.
    Gradient(SquaredGradient),
}

/// The sum of the scores of micro-batches, added in the order of their gradients. If a loss is not finite,
/// the first such micro-batch.
pub(in crate::worker) type GroupScore = std::result::Result<Score, MicroBatch>;

/// A sum of the squares of a piece of a parameter's gradient.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct SquaredGradient {
    stage: StageId,
    /// The parameter's place in the stage.
    index: usize,
    /// The number of the sum among all sums of the parameter.
    sum: usize,
    square: f64,
}

/// What the ranks send each other at the end of a step, and what follows from it. It is used again in each
/// step and keeps its memory.
#[derive(Debug, Default)]
pub(in crate::worker) struct Agreement {
    /// This rank's entries, one after the other.
    mine: Vec<u8>,
    all: Gathered,
    sums: Sums<GroupScore>,
    losses: Vec<(Node, GroupScore)>,
    /// The squared gradients of all ranks, in parameter order.
    gradients: Vec<SquaredGradient>,
}

impl Agreement {
    /// Forgets the previous step.
    pub(in crate::worker) fn begin(&mut self) {
        self.mine.clear();
        self.losses.clear();
        self.gradients.clear();
    }

    /// Adds the losses of a replica's micro-batches, on its rank of the last stage: each with its number and
    /// its gradient group, in order.
    pub(in crate::worker) fn tell_scores(&mut self, scores: impl Iterator<Item = (MicroBatch, u32, Score)>) {
        self.sums.clear();
        let mut open: Option<(u32, GroupScore)> = None;
        for (micro_batch, group, score) in scores {
            let score = match score.sum.is_finite() {
                true => Ok(score),
                false => Err(micro_batch),
            };
            open = Some(match open {
                Some((of, sum)) if of == group => (group, both(sum, score)),
                done => {
                    self.end_group(done);
                    (group, score)
                }
            });
        }
        self.end_group(open);
        for index in 0..self.sums.nodes().len() {
            let (node, sum) = self.sums.nodes()[index];
            self.tell(&Entry::Loss(node, sum));
        }
        self.sums.clear();
    }

    fn end_group(&mut self, group: Option<(u32, GroupScore)>) {
        if let Some((group, sum)) = group {
            self.sums.push(Node::of_group(group), sum, both);
        }
    }

    /// Adds a sum of squares of a parameter's gradient. The parameter is named by its place in a stage.
    pub(in crate::worker) fn tell_gradient(&mut self, stage: StageId, index: usize, sum: usize, square: f64) {
        self.tell(&Entry::Gradient(SquaredGradient { stage, index, sum, square }));
    }

    fn tell(&mut self, entry: &Entry) {
        postcard::to_io(entry, &mut self.mine).expect("memory takes what is written");
    }

    /// Sends this rank's entries to all ranks, and receives theirs.
    ///
    /// # Errors
    /// [`crate::Error::PeerGone`], or [`FabricError::Failed`].
    pub(in crate::worker) fn exchange<W: 'static>(&mut self, transport: &mut dyn Transport<W>) -> Result<()> {
        all_gather(transport, &self.mine, &mut self.all)?;
        let all = std::mem::take(&mut self.all);
        let heard = (0..).map(WorldRank).zip(all.ranks()).try_for_each(|(rank, told)| self.hear(rank, told));
        self.all = all;
        heard
    }

    /// This rank's entries.
    pub(in crate::worker) fn told(&self) -> &[u8] {
        &self.mine
    }

    /// Takes the entries of a rank.
    ///
    /// # Errors
    /// [`FabricError::Failed`].
    pub(in crate::worker) fn hear(&mut self, rank: WorldRank, mut told: &[u8]) -> Result<()> {
        while !told.is_empty() {
            let (entry, rest) = postcard::take_from_bytes(told).map_err(|error| {
                FabricError::unreadable_part(format_args!("rank {rank}"), "ending a step", error)
            })?;
            match entry {
                Entry::Loss(node, loss) => self.losses.push((node, loss)),
                Entry::Gradient(gradient) => self.gradients.push(gradient),
            }
            told = rest;
        }
        Ok(())
    }

    /// Takes this rank's own entries.
    ///
    /// # Errors
    /// As for [`Agreement::hear`].
    pub(in crate::worker) fn hear_own(&mut self, rank: WorldRank) -> Result<()> {
        let mine = std::mem::take(&mut self.mine);
        let heard = self.hear(rank, &mine);
        self.mine = mine;
        heard
    }

    /// The loss of the batch, or the first micro-batch whose loss is not finite. The losses of all ranks have
    /// been heard.
    pub(in crate::worker) fn score(&mut self) -> GroupScore {
        self.losses.sort_unstable_by_key(|(node, _)| node.first_group());
        for (node, loss) in self.losses.drain(..) {
            self.sums.push(node, loss, both);
        }
        self.sums.total(both).expect("some replica has micro-batches")
    }

    /// The step's numbers, or the first that is not finite. The entries of all ranks have been heard.
    /// `samples`: the number of micro-batches, if each counts as one sample whatever its weight.
    pub(in crate::worker) fn outcome(&mut self, samples: Option<u32>) -> StepOutcome {
        self.gradients.sort_unstable_by_key(|gradient| (gradient.stage, gradient.index, gradient.sum));
        let score = match self.score() {
            Ok(score) => score,
            Err(micro_batch) => return StepOutcome::NotFinite(Fault::Loss(micro_batch)),
        };
        let mut last_first = self.gradients.iter().rev();
        if let Some(gradient) = last_first.find(|gradient| !gradient.square.is_finite()) {
            return StepOutcome::NotFinite(Fault::Gradient(gradient.stage, gradient.index));
        }
        let squares: f64 = self.gradients.iter().map(|gradient| gradient.square).sum();
        let divisor = samples.map_or(score.weight, f64::from);
        let grad_norm = if divisor > 0.0 { squares.sqrt() / divisor } else { 0.0 };
        StepOutcome::Updated(StepTotals { score, divisor, grad_norm })
    }
}

/// How a step ended, from what each rank has told of it.
///
/// # Errors
/// [`FabricError::Failed`] when that cannot be read.
pub(crate) fn outcome_of<'a>(told: impl Iterator<Item = &'a [u8]>) -> Result<StepOutcome> {
    let mut agreement = Agreement::default();
    (0..).map(WorldRank).zip(told).try_for_each(|(rank, told)| agreement.hear(rank, told))?;
    Ok(agreement.outcome(None))
}

/// The sum of the scores of earlier and later micro-batches.
fn both(earlier: GroupScore, later: GroupScore) -> GroupScore {
    let (mut sum, later) = (earlier?, later?);
    sum.add(later);
    Ok(sum)
}
