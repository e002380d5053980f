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

    /// Takes the output of these rows, `[rows, width]`, if the loss [takes rows](Loss::takes_rows). The first
    /// rows come first, and none is left out. Gives their gradient, if it is wanted.
    ///
    /// # Errors
    /// As [`MicroBatchLoss::take`].
    pub fn take_rows(&mut self, rows: Range<usize>, output: W) -> Result<Option<W>> {
        let gradient = self.gradient;
        let (all, target) = rows_of(&self.target, &rows)?;
        let some = SomeRows { micro_batch: self.micro_batch, rows, all, gradient };
        let (score, grad) = self.loss.take_rows(&some, output, target).map_err(refused)?;
        self.score = score;
        Ok(gradient.then_some(grad))
    }

    /// The score. `None` before the output was taken; and in training, where a device has not computed it
    /// yet.
    pub fn score(&self) -> Option<Score> {
        self.score
    }
}

/// How many rows a target has, and some of them.
fn rows_of(target: &Tensor, rows: &Range<usize>) -> Result<(usize, Tensor)> {
    if target.shape().kind() == Kind::F32 {
        return Ok((target.shape().rows(), target.rows(rows.clone())?));
    }
    let mut some = Tensor::scratch_ids(&[rows.len()]);
    some.ids_mut().copy_from_slice(&target.ids()[rows.clone()]);
    Ok((target.shape().count(), some))
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
