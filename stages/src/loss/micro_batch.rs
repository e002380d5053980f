//! The loss of one micro-batch.

use std::any::Any;
use std::ops::Range;

use super::base::{Loss, refused};
use super::score::Score;
use super::some_rows::SomeRows;
use crate::error::{Error, Result};
use crate::shape::{Kind, Shape};
use crate::tensor::Tensor;

/// A loss and the target of one micro-batch. It takes the output of the last stage, whole or some rows at a
/// time: see [`Stage::head_and_loss`](crate::Stage::head_and_loss).
#[derive(Debug)]
pub struct MicroBatchLoss<'a, W> {
    loss: &'a mut dyn Loss<W>,
    micro_batch: u32,
    target: Tensor,
    gradient: bool,
    score: Option<Score>,
}

impl<'a, W: 'static> MicroBatchLoss<'a, W> {
    /// The loss of this micro-batch. `gradient`: whether the gradient is wanted too, as in training.
    pub fn new(loss: &'a mut dyn Loss<W>, micro_batch: u32, target: Tensor, gradient: bool) -> Self {
        Self { loss, micro_batch, target, gradient, score: None }
    }

    /// Takes the output of all rows. Gives the gradient of the loss, if it is wanted.
    ///
    /// # Errors
    /// Whatever stops the loss; and when its gradient has another shape than the output.
    pub fn take(&mut self, output: W) -> Result<Option<W>> {
        let target = self.target.clone();
        if !self.gradient {
            self.score = Some(self.loss.score(output, target).map_err(refused)?);
            return Ok(None);
        }
        let shape = shape_of(&output);
        let (score, grad) = self.loss.start(self.micro_batch, output, target).map_err(refused)?;
        self.score = score;
        check_gradient(shape, &grad)?;
        Ok(Some(grad))
    }

    /// Checks the shape of the whole output against the target's, before some rows are taken.
    ///
    /// # Errors
    /// As [`Loss::check`].
    pub fn check(&self, output: &Shape) -> Result<()> {
        self.loss.check(output, self.target.shape())
    }

    /// Whether rows on a GPU may be wider than the output: see [`Loss::takes_wider_rows`].
    pub fn takes_wider_rows(&self) -> bool {
        self.loss.takes_wider_rows()
    }

    /// Takes the output of these rows of `all`, if the loss [takes rows](Loss::takes_rows): `[rows,
    /// columns]`, or wider. The first rows come first, and none is left out. Gives their gradient, if it is
    /// wanted.
    ///
    /// # Errors
    /// As [`MicroBatchLoss::take`]. Also when the loss gives no score for the last rows, where it has to.
    pub fn take_rows(
        &mut self,
        rows: Range<usize>,
        [all, columns]: [usize; 2],
        output: W,
    ) -> Result<Option<W>> {
        let target = match self.loss.compares_rows() {
            true => self.target.clone(),
            false => rows_of(&self.target, &rows, all)?,
        };
        let some = self.some(rows, [all, columns]);
        let shape = shape_of(&output);
        let (score, grad) = self.loss.take_rows(&some, output, target).map_err(refused)?;
        if some.are_last() && !some.gradient && score.is_none() {
            return Err(refused(Error::new("it gave no score with the last rows")));
        }
        self.score = score;
        if !some.gradient {
            return Ok(None);
        }
        check_gradient(shape, &grad)?;
        Ok(Some(grad))
    }

    /// Whether [`MicroBatchLoss::look_at`] must be given all rows before any are taken: in training, for a
    /// loss that [compares rows](Loss::compares_rows).
    pub fn looks_first(&self) -> bool {
        self.gradient && self.loss.compares_rows()
    }

    /// Looks at the output of these rows of `all`, the first ones first, before any are
    /// [taken](MicroBatchLoss::take_rows).
    ///
    /// # Errors
    /// As [`Loss::look_at`].
    pub fn look_at(&mut self, rows: Range<usize>, of: [usize; 2], output: W) -> Result<()> {
        let (some, target) = (self.some(rows, of), self.target.clone());
        self.loss.look_at(&some, output, target).map_err(refused)
    }

    fn some(&self, rows: Range<usize>, [all, columns]: [usize; 2]) -> SomeRows {
        SomeRows { micro_batch: self.micro_batch, rows, all, columns, gradient: self.gradient }
    }

    /// The score. `None` before the output was taken; and in training, where a device has not computed it
    /// yet.
    pub fn score(&self) -> Option<Score> {
        self.score
    }
}

/// Some rows of a target that has `all` rows: `[rows]` ids, `[rows, width]` ids or numbers.
fn rows_of(target: &Tensor, rows: &Range<usize>, all: usize) -> Result<Tensor> {
    let each = target.shape().count() / all;
    let dims = [rows.len(), each];
    let of = rows.start * each..rows.end * each;
    if target.shape().kind() == Kind::F32 {
        return target.clone().reshape(&[all, each])?.rows(rows.clone());
    }
    let mut some = Tensor::scratch_ids(&dims[..if each == 1 { 1 } else { 2 }]);
    some.ids_mut().copy_from_slice(&target.ids()[of]);
    Ok(some)
}

/// The shape of a wire, if it is a tensor.
fn shape_of<W: 'static>(wire: &W) -> Option<Shape> {
    let wire: &dyn Any = wire;
    wire.downcast_ref::<Tensor>().map(|tensor| *tensor.shape())
}

fn check_gradient<W: 'static>(output: Option<Shape>, grad: &W) -> Result<()> {
    match output.zip(shape_of(grad)) {
        Some((output, got)) if output.dims() != got.dims() => Err(refused(Error::new(format!(
            "it gave a gradient of {got} for an output of {output}: a gradient has the shape of what it \
             belongs to"
        )))),
        _ => Ok(()),
    }
}
