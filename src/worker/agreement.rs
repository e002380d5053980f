//! What all ranks agree on at the end of a step: loss, gradient norm, and whether they are finite.

use pipewright_stages::loss::Score;
use serde::{Deserialize, Serialize};

use super::outcome::{Fault, Outcome, Totals};
use crate::error::{FabricError, PartOf, Result};
use crate::fabric::{Gathered, Transport, all_gather};
use crate::id::{MicroBatch, StageId, WorldRank};

/// One value that a rank sends to all others.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum Entry {
    /// From the rank of the last stage: the loss of the batch.
    Loss(BatchScore),
    /// The squared gradient of a parameter.
    Gradient(SquaredGradient),
}

/// The sum of the scores of all micro-batches, added in their order. If a loss is not finite, the first such
/// micro-batch.
type BatchScore = std::result::Result<Score, MicroBatch>;

/// The sum of the squares of a parameter's gradient.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct SquaredGradient {
    stage: StageId,
    /// The parameter's place in the stage.
    index: usize,
    square: f64,
}

/// What the ranks send each other at the end of a step, and what follows from it. It is used again in each
/// step and keeps its memory.
#[derive(Debug)]
pub(super) struct Agreement {
    /// This rank's entries, one after the other.
    mine: Vec<u8>,
    all: Gathered,
    loss: BatchScore,
    /// The squared gradients of all ranks, in parameter order.
    gradients: Vec<SquaredGradient>,
}

impl Default for Agreement {
    fn default() -> Self {
        Self {
            mine: Vec::new(),
            all: Gathered::default(),
            loss: Ok(Score::default()),
            gradients: Vec::new(),
        }
    }
}

impl Agreement {
    /// Forgets the previous step.
    pub(super) fn begin(&mut self) {
        self.mine.clear();
        self.gradients.clear();
    }

    /// Adds the loss of the batch, on the rank of the last stage. `scores` are those of all micro-batches, in
    /// their order.
    pub(super) fn tell_scores(&mut self, scores: impl Iterator<Item = Score>) {
        let mut loss: BatchScore = Ok(Score::default());
        for (index, score) in (0..).zip(scores) {
            match &mut loss {
                Ok(_) if !score.sum.is_finite() => loss = Err(MicroBatch(index)),
                Ok(total) => total.add(score),
                Err(_) => {}
            }
        }
        self.tell(Entry::Loss(loss));
    }

    /// Adds the squared gradient of a parameter, which is named by its place in a stage.
    pub(super) fn tell_gradient(&mut self, stage: StageId, index: usize, square: f64) {
        self.tell(Entry::Gradient(SquaredGradient { stage, index, square }));
    }

    fn tell(&mut self, entry: Entry) {
        postcard::to_io(&entry, &mut self.mine).expect("memory takes what is written");
    }

    /// Sends this rank's entries to all ranks, and receives theirs.
    ///
    /// # Errors
    /// [`crate::Error::PeerGone`], or [`FabricError::UnreadablePart`].
    pub(super) fn exchange<W: 'static>(&mut self, transport: &mut dyn Transport<W>) -> Result<()> {
        all_gather(transport, &self.mine, &mut self.all)?;
        for (rank, mut told) in (0..).map(WorldRank).zip(self.all.ranks()) {
            while !told.is_empty() {
                let (entry, rest) = postcard::take_from_bytes(told).map_err(|error| {
                    FabricError::unreadable_part(PartOf::Rank(rank), "ending a step", error)
                })?;
                match entry {
                    Entry::Loss(loss) => self.loss = loss,
                    Entry::Gradient(gradient) => self.gradients.push(gradient),
                }
                told = rest;
            }
        }
        self.gradients
            .sort_unstable_by_key(|gradient| (gradient.stage, gradient.index));
        Ok(())
    }

    /// The step's numbers, or the first that is not finite.
    pub(super) fn outcome(&self) -> Outcome {
        let score = match self.loss {
            Ok(score) => score,
            Err(micro_batch) => return Outcome::NotFinite(Fault::Loss(micro_batch)),
        };
        let mut last_first = self.gradients.iter().rev();
        if let Some(gradient) = last_first.find(|gradient| !gradient.square.is_finite()) {
            return Outcome::NotFinite(Fault::Gradient(gradient.stage, gradient.index));
        }
        let squares: f64 = self.gradients.iter().map(|gradient| gradient.square).sum();
        let grad_norm = if score.weight > 0.0 {
            squares.sqrt() / score.weight
        } else {
            0.0
        };
        Outcome::Updated(Totals { score, grad_norm })
    }
}
