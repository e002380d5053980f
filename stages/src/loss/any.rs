//! A loss of any type.

use std::fmt;

use super::base::Loss;
use super::{Score, SomeRows};
use crate::error::Result;
use crate::shape::Shape;
use crate::shards::{Division, Team};
use crate::tensor::Tensor;

/// A loss whose type is chosen while the program runs, for example by a config.
///
/// ```
/// use pipewright_stages::loss::{AnyLoss, CrossEntropy, MeanSquaredError};
///
/// let has_classes = true;
/// let loss = match has_classes {
///     true => AnyLoss::new(CrossEntropy::default()),
///     false => AnyLoss::new(MeanSquaredError::default()),
/// };
/// assert!(format!("{loss:?}").starts_with("CrossEntropy"));
/// ```
pub struct AnyLoss(Box<dyn Cloned>);

/// A loss that can be cloned.
trait Cloned: Loss<Tensor> {
    fn cloned(&self) -> Box<dyn Cloned>;
}

impl<L: Loss<Tensor> + Clone> Cloned for L {
    fn cloned(&self) -> Box<dyn Cloned> {
        Box::new(self.clone())
    }
}

impl AnyLoss {
    /// This loss.
    pub fn new(loss: impl Loss<Tensor> + Clone) -> Self {
        Self(Box::new(loss))
    }
}

impl Clone for AnyLoss {
    fn clone(&self) -> Self {
        Self(self.0.as_ref().cloned())
    }
}

impl fmt::Debug for AnyLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Loss<Tensor> for AnyLoss {
    fn check(&self, output: &Shape, target: &Shape) -> Result<()> {
        self.0.check(output, target)
    }

    fn forward(&mut self, output: Tensor, target: Tensor) -> Result<(Score, Tensor)> {
        self.0.forward(output, target)
    }

    fn start(&mut self, micro_batch: u32, output: Tensor, target: Tensor) -> Result<(Option<Score>, Tensor)> {
        self.0.start(micro_batch, output, target)
    }

    fn finish(&mut self, micro_batch: u32) -> Score {
        self.0.finish(micro_batch)
    }

    fn takes_rows(&self) -> bool {
        self.0.takes_rows()
    }

    fn takes_wider_rows(&self) -> bool {
        self.0.takes_wider_rows()
    }

    fn compares_rows(&self) -> bool {
        self.0.compares_rows()
    }

    fn look_at(&mut self, rows: &SomeRows, output: Tensor, target: Tensor) -> Result<()> {
        self.0.look_at(rows, output, target)
    }

    fn take_rows(
        &mut self,
        rows: &SomeRows,
        output: Tensor,
        target: Tensor,
    ) -> Result<(Option<Score>, Tensor)> {
        self.0.take_rows(rows, output, target)
    }

    fn runs_on_gpus(&self) -> bool {
        self.0.runs_on_gpus()
    }

    fn join(&mut self, team: &Team, outputs: &Division) -> Result<()> {
        self.0.join(team, outputs)
    }

    fn score(&mut self, output: Tensor, target: Tensor) -> Result<Score> {
        self.0.score(output, target)
    }
}
