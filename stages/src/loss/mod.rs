//! What training makes small.

mod cross_entropy;
mod mean_squared_error;

pub use cross_entropy::CrossEntropy;
pub use mean_squared_error::MeanSquaredError;

use crate::error::{Error, Result};
use crate::shape::Shape;
use crate::tensor::Tensor;

/// The loss of a micro-batch: a function of the last stage's output and the target.
///
/// A loss is a sum with its weight, never a mean: micro-batches of unequal weight then give the gradient of one big batch,
/// and the step divides once.
pub trait Loss<W>: Send + 'static {
    /// Refuses shapes that do not go together, before the first step.
    ///
    /// # Errors
    /// When the target does not fit the output: the error says what would.
    fn check(&self, output: &Shape, target: &Shape) -> Result<()>;

    /// Training: the score, and the gradient of the sum of the loss with respect to the output.
    ///
    /// # Errors
    /// When a target is outside what the output knows.
    fn forward(&mut self, output: W, target: Tensor) -> Result<(Score, W)>;

    /// As [`Loss::forward`], for the engine: a loss whose device works while the host goes on gives no score yet, and tells it by
    /// [`Loss::finish`].
    ///
    /// # Errors
    /// As [`Loss::forward`].
    fn start(&mut self, _micro_batch: u32, output: W, target: Tensor) -> Result<(Option<Score>, W)> {
        self.forward(output, target)
            .map(|(score, grad)| (Some(score), grad))
    }

    /// The score of a micro-batch for which [`Loss::start`] gave none, once the device is done.
    ///
    /// # Panics
    /// Where [`Loss::start`] gives all scores, as it does when nobody writes it: nobody asks.
    fn finish(&mut self, micro_batch: u32) -> Score {
        unreachable!("the score of micro-batch {micro_batch} was given when it started")
    }

    /// Whether it also judges the output of a stage on a GPU.
    fn runs_on_gpus(&self) -> bool {
        false
    }

    /// Evaluation: the score only.
    ///
    /// # Errors
    /// As [`Loss::forward`].
    fn score(&mut self, output: W, target: Tensor) -> Result<Score>;
}

/// A loss summed over targets, and over how many.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Score {
    /// The loss summed over the counted targets.
    pub sum: f64,
    /// The number of counted targets: tokens, rows or numbers.
    pub weight: f64,
    /// How many of them the largest output got right; `None` where there is no right or wrong.
    pub correct: Option<f64>,
}

impl Score {
    /// The mean loss over the counted targets; 0 when there are none.
    pub fn mean(&self) -> f64 {
        if self.weight > 0.0 {
            self.sum / self.weight
        } else {
            0.0
        }
    }

    /// The share of right predictions, for classification.
    pub fn accuracy(&self) -> Option<f64> {
        self.correct
            .filter(|_| self.weight > 0.0)
            .map(|correct| correct / self.weight)
    }

    /// Adds another score to this one.
    pub fn add(&mut self, other: Score) {
        self.sum += other.sum;
        self.weight += other.weight;
        self.correct = match (self.correct, other.correct) {
            (Some(a), Some(b)) => Some(a + b),
            (a, b) => a.or(b),
        };
    }
}

/// The refusal of an output or target.
fn refused(error: impl Into<Error>) -> Error {
    error.into().at("loss")
}
