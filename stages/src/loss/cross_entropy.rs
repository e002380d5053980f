//! Cross-entropy of classes.

use super::{Loss, Score};
use crate::cpu::softmax;
use crate::error::{Error, ErrorKind, Result};
use crate::tensor::{Kind, Shape, Tensor};

/// The negative log-likelihood, in nats, of the target class under the softmax of the output: logits `[.., classes]`
/// and ids `[..]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CrossEntropy {
    /// A class that is not counted and gives no gradient.
    pub ignore: Option<u32>,
}

impl CrossEntropy {
    /// Turns logits into the gradient, row by row, and adds up the score.
    fn run(&self, logits: &mut Tensor, target: &Tensor) -> Result<Score> {
        self.check(logits.shape(), target.shape())?;
        let classes = logits.shape().last();
        let mut score = Score {
            correct: Some(0.0),
            ..Score::default()
        };
        for (row, &class) in logits.f32_mut().chunks_exact_mut(classes).zip(target.ids()) {
            if self.ignore == Some(class) {
                row.fill(0.0);
                continue;
            }
            if class as usize >= classes {
                let kind = ErrorKind::OutOfRange {
                    what: "class",
                    id: class,
                    limit: classes,
                };
                return Err(Error {
                    place: "loss".to_owned(),
                    kind,
                });
            }
            score.add(one_row(row, class as usize));
        }
        Ok(score)
    }
}

/// The score of a row of logits, which becomes the gradient.
fn one_row(row: &mut [f32], class: usize) -> Score {
    let logit = row[class];
    // The first of the largest, as argmax.
    let right =
        row[..class].iter().all(|&other| other < logit) && row[class..].iter().all(|&other| other <= logit);
    let (largest, log_sum) = softmax::probabilities(row);
    row[class] -= 1.0;
    let sum = f64::from(log_sum) - (f64::from(logit) - f64::from(largest));
    Score {
        sum,
        weight: 1.0,
        correct: Some(f64::from(u8::from(right))),
    }
}

impl Loss<Tensor> for CrossEntropy {
    fn check(&self, output: &Shape, target: &Shape) -> Result<()> {
        let logits = output.kind() == Kind::F32 && !output.dims().is_empty() && output.last() > 0;
        if !logits {
            return Err(super::unfit("f32[.., classes] as the output", output));
        }
        let expected = Shape::ids(&output.dims()[..output.dims().len() - 1]);
        if *target != expected {
            return Err(super::unfit(format!("{expected} as the target"), target));
        }
        Ok(())
    }

    fn forward(&mut self, mut output: Tensor, target: Tensor) -> Result<(Score, Tensor)> {
        let score = self.run(&mut output, &target)?;
        Ok((score, output))
    }

    fn score(&mut self, mut output: Tensor, target: Tensor) -> Result<Score> {
        self.run(&mut output, &target)
    }
}
