//! What this replica owns of a stage, apart from the stage: a server updates it while the stage works with
//! older weights.

use pipewright_stages::optimizer::{self, Optimizer, Update};
use pipewright_stages::{Init, Parameter, Stage, Together};

use super::partials::visit;
use super::slices::{Slices, Span};
use crate::error::Result;

/// The numbers of a stage's parameters that this replica owns, with the optimizer's state for them.
#[derive(Debug)]
pub(super) struct Owned {
    /// By parameter: where its owned numbers begin, and a parameter of these numbers alone.
    parts: Vec<(usize, Parameter)>,
}

impl Owned {
    /// Copies the owned weights of a stage, and takes the optimizer's state out of it.
    pub(super) fn take<S: Stage>(stage: &mut S, slices: &Slices, replica: u32) -> Result<Self> {
        let mut parts = Vec::new();
        visit(stage, |index, parameter| {
            let owned = slices.owned(index, replica);
            // An optimizer may ask whether it is a matrix.
            let dims = [1, owned.len()];
            let dims = &dims[usize::from(!parameter.is_matrix())..];
            let mut part = Parameter::new(parameter.name(), dims, Init::Zeros, 0);
            part.value.copy_from_slice(&parameter.value[owned.clone()]);
            if let Some(share) = parameter.running_share() {
                part = part.running(share);
            }
            part.train_by(parameter.training());
            part.state = std::mem::take(&mut parameter.state);
            parts.push((owned.start, part));
            Ok(())
        })?;
        Ok(Self { parts })
    }

    /// Gives the optimizer's state back to the stage.
    pub(super) fn give_back<S: Stage>(self, stage: &mut S) -> Result<()> {
        let mut parts = self.parts.into_iter();
        visit(stage, |_, parameter| {
            let part = parts.next();
            parameter.state = part.map(|(_, part)| part.state).unwrap_or_default();
            Ok(())
        })
    }

    /// Sets these numbers of the gradients.
    pub(super) fn set_gradients(&mut self, spans: &[Span], mut block: &[u8]) -> Result<()> {
        for (index, range) in spans {
            let (numbers, rest) = block.split_at(range.len() * size_of::<f32>());
            block = rest;
            let (start, part) = &mut self.parts[*index];
            part.set_grad(range.start - *start, numbers)?;
        }
        Ok(())
    }

    /// Calls `tell` with each owned piece of a parameter's gradient: the parameter, the piece, and the sum of
    /// the squares.
    pub(super) fn squares(&self, mut tell: impl FnMut(usize, usize, f64)) {
        for (index, (start, part)) in self.parts.iter().enumerate() {
            let first = start / Parameter::PIECE;
            (0..part.pieces()).for_each(|piece| tell(index, first + piece, part.grad_squares(piece)));
        }
    }

    /// Updates the weights.
    pub(super) fn update(&mut self, optimizer: &dyn Optimizer, update: Update) -> Result<()> {
        let mut together = Together::default();
        for (_, part) in &mut self.parts {
            optimizer::update(optimizer, part, update, &mut together)?;
        }
        Ok(together.launch()?)
    }

    /// Appends these weights.
    pub(super) fn append_weights(&self, spans: &[Span], block: &mut Vec<u8>) -> Result<()> {
        for (index, range) in spans {
            let (start, part) = &self.parts[*index];
            part.append_value(range.start - start..range.end - start, block)?;
        }
        Ok(())
    }
}
