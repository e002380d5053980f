//! What a loss is.

use super::score::Score;
use super::some_rows::SomeRows;
use crate::error::{Error, Result};
use crate::shape::{Kind, Shape};
use crate::shards::{Division, Team};
use crate::tensor::Tensor;

/// The loss of a micro-batch: a function of the last stage's output and the target.
///
/// A loss is a sum with a weight, never a mean. So micro-batches of unequal weight give the gradient of one
/// big batch, and the step divides once.
///
/// The processes of a run compare the text that `Debug` gives before the first step. So it should have all
/// settings of the loss, and nothing that differs between processes.
///
/// ```
/// use pipewright_stages::loss::{Loss, Score};
/// use pipewright_stages::{Error, Result, Shape, Tensor};
///
/// /// Learns the quantile `share` of the targets.
/// #[derive(Clone, Copy, Debug)]
/// struct Quantile {
///     share: f32,
/// }
///
/// impl Loss<Tensor> for Quantile {
///     fn check(&self, output: &Shape, target: &Shape) -> Result<()> {
///         let fits = output == target;
///         fits.then_some(()).ok_or_else(|| Error::other(format!("{target} for {output}")))
///     }
///
///     fn forward(&mut self, mut output: Tensor, target: Tensor) -> Result<(Score, Tensor)> {
///         let mut sum = 0.0;
///         for (x, y) in output.f32_mut().iter_mut().zip(target.f32()) {
///             let slope = if *x < *y { -self.share } else { 1.0 - self.share };
///             sum += f64::from(slope * (*x - y));
///             *x = slope;
///         }
///         Ok((Score::new(sum, target.shape().count() as f64), output))
///     }
///
///     fn score(&mut self, output: Tensor, target: Tensor) -> Result<Score> {
///         Ok(self.forward(output, target)?.0)
///     }
/// }
///
/// let targets = Tensor::from_vec(&[2], vec![1.0, -2.0])?;
/// let score = Quantile { share: 0.75 }.score(Tensor::zeros(&[2]), targets)?;
/// assert_eq!(score.mean(), 0.625);
/// # Ok::<(), Error>(())
/// ```
pub trait Loss<W>: std::fmt::Debug + Send + 'static {
    /// Checks, before the first step, that the shapes of output and target fit each other.
    ///
    /// # Errors
    /// When the target does not fit the output. The error says what would fit.
    fn check(&self, output: &Shape, target: &Shape) -> Result<()>;

    /// Training: the score, and the gradient of the summed loss with respect to the output.
    ///
    /// # Errors
    /// When a target is out of range, such as a class that the output does not have.
    fn forward(&mut self, output: W, target: Tensor) -> Result<(Score, W)>;

    /// Like [`Loss::forward`], for the engine. If the loss runs on a device that works while the host goes
    /// on, it gives no score here; [`Loss::finish`] gives it later.
    ///
    /// # Errors
    /// As [`Loss::forward`].
    fn start(&mut self, _micro_batch: u32, output: W, target: Tensor) -> Result<(Option<Score>, W)> {
        self.forward(output, target).map(|(score, grad)| (Some(score), grad))
    }

    /// The score of a micro-batch for which [`Loss::start`] gave none. Called once the device is done.
    ///
    /// # Panics
    /// In the default, which is for losses whose [`Loss::start`] always gives the score: then nobody calls
    /// this.
    fn finish(&mut self, micro_batch: u32) -> Score {
        unreachable!("the score of micro-batch {micro_batch} was given when it started")
    }

    /// Whether [`Loss::take_rows`] may be called: only for a loss that is a sum over rows, each with its own
    /// part of the target, or for one that [compares rows](Loss::compares_rows).
    fn takes_rows(&self) -> bool {
        false
    }

    /// Whether, on a GPU, the rows that [`Loss::take_rows`] gets may have more columns than
    /// [`SomeRows::columns`]. There is no output in these, only room, so that each row begins at an address
    /// that a GPU reads fast. Nobody reads their gradient.
    fn takes_wider_rows(&self) -> bool {
        false
    }

    /// Whether the loss compares rows, so that no gradient is known before all rows were seen. Then the
    /// output of all rows is given to [`Loss::look_at`] before [`Loss::take_rows`] in training, which costs
    /// one more product. And both get the target of all rows.
    fn compares_rows(&self) -> bool {
        false
    }

    /// Looks at the output of some rows, for a loss that [compares rows](Loss::compares_rows). Called in
    /// training with the first rows first, until all were given. `target` is the target of all rows.
    ///
    /// # Errors
    /// As [`Loss::forward`]. The default always fails.
    fn look_at(&mut self, _rows: &SomeRows, _output: W, _target: Tensor) -> Result<()> {
        Err(refused(Error::new(
            "it compares rows, and cannot look at some of them: it lacks `Loss::look_at`",
        )))
    }

    /// Like [`Loss::start`] and [`Loss::score`], with the output and the target of some rows of a
    /// micro-batch: `[rows, width]`, and `[rows]` or `[rows, numbers]`. Called with its first rows first,
    /// until all were given. The score of the micro-batch comes with the last ones, or, in training, from
    /// [`Loss::finish`].
    ///
    /// # Errors
    /// As [`Loss::forward`]. The default always fails.
    fn take_rows(&mut self, _rows: &SomeRows, _output: W, _target: Tensor) -> Result<(Option<Score>, W)> {
        Err(refused(Error::new("it does not take some rows at a time: it lacks `Loss::take_rows`")))
    }

    /// Whether it also takes the output of a stage on a GPU, and of one in `bf16`.
    fn runs_on_gpus(&self) -> bool {
        false
    }

    /// Makes this the loss of one of several shards. Each has a part of the last layer's outputs, of all
    /// rows: `outputs` says which. The score is the same on all shards.
    ///
    /// # Errors
    /// When the loss cannot be divided. The default always fails.
    fn join(&mut self, _team: &Team, _outputs: &Division) -> Result<()> {
        Err(refused(Error::new(
            "it cannot be divided among shards: it lacks `Loss::join`; set the number of shards to 1",
        )))
    }

    /// Evaluation: the score only.
    ///
    /// # Errors
    /// As [`Loss::forward`].
    fn score(&mut self, output: W, target: Tensor) -> Result<Score> {
        Ok(self.forward(output, target)?.0)
    }
}

/// The error for an output or target that does not fit.
pub(crate) fn refused(error: Error) -> Error {
    error.at("loss")
}

/// Fails unless this output is what the loss takes.
pub(crate) fn check_output(is_right: bool, expected: &str, got: &Shape) -> Result<()> {
    if is_right {
        return Ok(());
    }
    Err(refused(Error::new(format!("expected {expected} as the output, got {got}"))))
}

/// Fails unless the target has the shape that fits the output.
pub(crate) fn check_target(expected: &Shape, got: &Shape) -> Result<()> {
    if got == expected {
        return Ok(());
    }
    Err(refused(Error::new(format!("expected {expected} as the target, got {got}"))))
}

/// Fails unless output and target are numbers of one shape.
pub(crate) fn check_numbers(output: &Shape, target: &Shape) -> Result<()> {
    check_output(output.kind() == Kind::F32, "f32 numbers", output)?;
    check_target(output, target)
}

/// Turns each output into its gradient, and returns the sum of the losses, added up in order. `one` gives the
/// loss of an output beside its target, and its slope.
pub(crate) fn of_numbers(output: &mut Tensor, target: &Tensor, one: impl Fn(f32, f32) -> (f64, f32)) -> f64 {
    let mut sum = 0.0;
    for (number, &target) in output.f32_mut().iter_mut().zip(target.f32()) {
        let (loss, slope) = one(*number, target);
        sum += loss;
        *number = slope;
    }
    sum
}
