//! Huber's loss.

use super::Score;
use super::base::{Loss, check_numbers, of_numbers};
use crate::error::{Error, Result};
use crate::shape::Shape;
use crate::tensor::Tensor;

/// Half of the squared distance `d` of output and target up to `delta`, and `delta (d - delta / 2)` beyond
/// it, summed over all numbers: few numbers far away count less than in a squared error. The weight is how
/// many numbers there are. Huber, "Robust estimation of a location parameter" (1964); PyTorch calls it
/// `HuberLoss`.
///
/// It computes on the CPU, in `f32`.
///
/// ```
/// use pipewright_stages::Tensor;
/// use pipewright_stages::loss::{Huber, Loss};
///
/// let output = Tensor::from_vec(&[2], vec![0.5, 4.0])?;
/// let (score, grad) = Huber::new(1.0)?.forward(output, Tensor::zeros(&[2]))?;
/// assert_eq!(score.sum, 0.125 + 3.5);
/// assert_eq!(grad.f32(), [0.5, 1.0]);
/// # Ok::<(), pipewright_stages::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Huber {
    delta: f32,
}

impl Huber {
    /// A loss that is linear beyond this distance. PyTorch's default is 1.
    ///
    /// # Errors
    /// When it is not a number above 0.
    pub fn new(delta: f32) -> Result<Self> {
        if delta > 0.0 && delta.is_finite() {
            return Ok(Self { delta });
        }
        Err(Error::new(format!("Huber's delta is {delta}: it must be a number above 0, such as 1.0")))
    }
}

impl Loss<Tensor> for Huber {
    fn check(&self, output: &Shape, target: &Shape) -> Result<()> {
        check_numbers(output, target)
    }

    fn forward(&mut self, mut output: Tensor, target: Tensor) -> Result<(Score, Tensor)> {
        self.check(output.shape(), target.shape())?;
        let delta = self.delta;
        let sum = of_numbers(&mut output, &target, |x, y| {
            let apart = x - y;
            let loss = match apart.abs() > delta {
                true => delta * (apart.abs() - 0.5 * delta),
                false => 0.5 * apart * apart,
            };
            (f64::from(loss), apart.clamp(-delta, delta))
        });
        Ok((Score::new(sum, target.shape().count() as f64), output))
    }
}
