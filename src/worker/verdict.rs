//! What all ranks agree on at the end of a step: loss, gradient norm, and whether they are finite.

use std::ops::Range;

use pipewright_stages::loss::Score;
use serde::{Deserialize, Serialize};

use crate::fabric::{Gathered, Transport, all_gather};
use crate::id::{MicroBatch, StageId};

/// The step's numbers, the same on every rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Verdict {
    /// The sums over all micro-batches, in micro-batch order.
    #[serde(with = "ScoreForm")]
    pub(crate) score: Score,
    /// The global norm of the mean gradient, before clipping.
    pub(crate) grad_norm: f64,
}

/// How a score goes to other processes.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Score")]
struct ScoreForm {
    sum: f64,
    weight: f64,
    correct: Option<f64>,
}

/// How a step ended.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Outcome {
    /// The weights have been updated.
    Updated(Verdict),
    /// Nothing was updated: a number is NaN or infinite.
    NotFinite(Fault),
}

/// The first number of a step that is not finite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Fault {
    /// The loss of a micro-batch.
    Loss(MicroBatch),
    /// The gradient of a parameter: the last in the model, so the first that backward gave.
    Gradient(StageId, usize),
}

/// What the ranks tell each other at the end of a step, and what they make of it. Used again and again, it keeps its memory.
#[derive(Debug, Default)]
pub(super) struct Ballots {
    /// This rank's: the number of scores, three numbers for each, and for each of its stages the stage, the number of its
    /// parameters and their squared gradients.
    mine: Vec<f64>,
    /// Where the number of parameters of the stage being told of stands.
    count: usize,
    all: Gathered,
    /// Where the squared gradients of each stage stand among all numbers, in stage order.
    squares: Vec<(StageId, Range<usize>)>,
}

impl Ballots {
    /// Begins this rank's ballot with the scores by micro-batch; there are none but on the rank of the last stage.
    pub(super) fn begin(&mut self, scores: impl ExactSizeIterator<Item = Score>) {
        self.mine.clear();
        self.mine.push(scores.len() as f64);
        for score in scores {
            let correct = score.correct.unwrap_or(-1.0);
            self.mine.extend([score.sum, score.weight, correct]);
        }
    }

    /// The squares that follow are of this stage's parameters.
    pub(super) fn begin_stage(&mut self, stage: StageId) {
        self.mine.extend([f64::from(stage.0), 0.0]);
        self.count = self.mine.len() - 1;
    }

    /// The squared gradient of the stage's next parameter.
    pub(super) fn push_square(&mut self, square: f64) {
        self.mine.push(square);
        self.mine[self.count] += 1.0;
    }

    /// Tells all ranks, and hears from them.
    pub(super) fn exchange<W: 'static>(&mut self, transport: &mut dyn Transport<W>) -> crate::Result<()> {
        all_gather(transport, &self.mine, &mut self.all)?;
        self.find_squares();
        Ok(())
    }

    fn find_squares(&mut self) {
        self.squares.clear();
        let mut start = 0;
        for numbers in self.all.ranks() {
            let mut at = 1 + 3 * numbers[0] as usize;
            while let [stage, count, ..] = numbers[at..] {
                let first = at + 2;
                at = first + count as usize;
                self.squares
                    .push((StageId(stage as u32), start + first..start + at));
            }
            start += numbers.len();
        }
        self.squares.sort_unstable_by_key(|(stage, _)| *stage);
    }

    /// The scores of all micro-batches, in their order.
    fn scores(&self) -> impl Iterator<Item = Score> {
        self.all
            .ranks()
            .flat_map(|numbers| numbers[1..].as_chunks::<3>().0[..numbers[0] as usize].iter())
            .map(|&[sum, weight, correct]| Score {
                sum,
                weight,
                correct: (correct >= 0.0).then_some(correct),
            })
    }

    /// The squared gradients of all parameters by stage, in order.
    fn squares(&self) -> impl DoubleEndedIterator<Item = (StageId, &[f64])> {
        let numbers = self.all.numbers();
        self.squares
            .iter()
            .map(|(stage, range)| (*stage, &numbers[range.clone()]))
    }

    /// The step's numbers, or the first that is not finite.
    pub(super) fn verdict(&self) -> Result<Verdict, Fault> {
        if let Some(index) = self.scores().position(|score| !score.sum.is_finite()) {
            return Err(Fault::Loss(MicroBatch(index as u32)));
        }
        for (stage, squares) in self.squares().rev() {
            if let Some(index) = squares.iter().rposition(|square| !square.is_finite()) {
                return Err(Fault::Gradient(stage, index));
            }
        }
        let mut score = Score::default();
        self.scores().for_each(|part| score.add(part));
        let squares: f64 = self.squares().flat_map(|(_, squares)| squares).sum();
        let grad_norm = if score.weight > 0.0 {
            squares.sqrt() / score.weight
        } else {
            0.0
        };
        Ok(Verdict { score, grad_norm })
    }
}
