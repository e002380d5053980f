//! What all ranks agree on at the end of a step: loss, gradient norm, and whether they are finite.

use pipewright_stages::loss::Score;

use crate::id::{MicroBatch, StageId};

/// The step's numbers, the same on every rank.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Verdict {
    /// The sums over all micro-batches, in micro-batch order.
    pub(crate) score: Score,
    /// The global norm of the mean gradient, before clipping.
    pub(crate) grad_norm: f64,
}

/// How a step ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Outcome {
    /// The weights have been updated.
    Updated(Verdict),
    /// Nothing was updated: a number is NaN or infinite.
    NotFinite(Fault),
}

/// The first number of a step that is not finite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The loss of a micro-batch.
    Loss(MicroBatch),
    /// The gradient of a parameter: the last in the model, so the first that backward gave.
    Gradient(StageId, usize),
}

/// What one rank tells the others, and what they make of it.
#[derive(Debug, Default)]
pub(super) struct Ballot {
    /// Scores by micro-batch; empty but on the rank of the last stage.
    pub(super) scores: Vec<Score>,
    /// Squared gradient by parameter, for each stage of the rank.
    pub(super) squares: Vec<(StageId, Vec<f64>)>,
}

impl Ballot {
    pub(super) fn encode(&self) -> Vec<f64> {
        let mut numbers = vec![self.scores.len() as f64];
        for score in &self.scores {
            numbers.extend([score.sum, score.weight, score.correct.unwrap_or(-1.0)]);
        }
        for (stage, squares) in &self.squares {
            numbers.extend([f64::from(stage.0), squares.len() as f64]);
            numbers.extend(squares);
        }
        numbers
    }

    /// Merges the ballots of all ranks: scores in micro-batch order, squares in stage order.
    pub(super) fn merge(ballots: &[Vec<f64>]) -> Self {
        let mut merged = Self::default();
        for numbers in ballots {
            let (scores, mut rest) = numbers[1..].split_at(3 * numbers[0] as usize);
            merged.scores.extend(
                scores
                    .as_chunks::<3>()
                    .0
                    .iter()
                    .map(|&[sum, weight, correct]| Score {
                        sum,
                        weight,
                        correct: (correct >= 0.0).then_some(correct),
                    }),
            );
            while let [stage, count, tail @ ..] = rest {
                let (squares, next) = tail.split_at(*count as usize);
                merged.squares.push((StageId(*stage as u32), squares.to_vec()));
                rest = next;
            }
        }
        merged.squares.sort_by_key(|(stage, _)| *stage);
        merged
    }

    /// The step's numbers, or the first that is not finite.
    pub(super) fn verdict(&self) -> Result<Verdict, Fault> {
        if let Some(index) = self.scores.iter().position(|score| !score.sum.is_finite()) {
            return Err(Fault::Loss(MicroBatch(index as u32)));
        }
        for (stage, squares) in self.squares.iter().rev() {
            if let Some(index) = squares.iter().rposition(|square| !square.is_finite()) {
                return Err(Fault::Gradient(*stage, index));
            }
        }
        let mut score = Score::default();
        self.scores.iter().for_each(|part| score.add(*part));
        let squares: f64 = self.squares.iter().flat_map(|(_, squares)| squares).sum();
        let grad_norm = if score.weight > 0.0 {
            squares.sqrt() / score.weight
        } else {
            0.0
        };
        Ok(Verdict { score, grad_norm })
    }
}
