//! The scores of losses on GPUs.

use crate::cuda::{Pinned, Ptr};
use crate::error::Result;

/// The bytes of a partial score: the loss, the weight, how many were right.
pub(crate) const SCORE: usize = 24;

/// Room for the scores of each micro-batch, of `N` numbers each: one score, or one for each part of its rows.
#[derive(Debug, Default)]
pub(crate) struct Scores<const N: usize>(Vec<Parts>);

#[derive(Debug, Default)]
struct Parts {
    places: Vec<Pinned>,
    /// How many of the places are of the newest pass.
    used: usize,
}

impl<const N: usize> Clone for Scores<N> {
    /// Room for a clone of the loss. Scores that a GPU has not given yet stay with this one.
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl<const N: usize> Scores<N> {
    /// The address for the score of rows of a micro-batch, each number an `f64`. `are_first`: whether no rows
    /// came before them.
    pub(crate) fn place(&mut self, micro_batch: u32, are_first: bool) -> Result<Ptr> {
        let index = micro_batch as usize;
        if self.0.len() <= index {
            self.0.resize_with(index + 1, Parts::default);
        }
        let parts = &mut self.0[index];
        if are_first {
            parts.used = 0;
        }
        if parts.used == parts.places.len() {
            parts.places.push(Pinned::new(size_of::<[f64; N]>())?);
        }
        parts.used += 1;
        Ok(parts.places[parts.used - 1].at())
    }

    /// The score of a micro-batch, once the GPU is done.
    pub(crate) fn numbers(&self, micro_batch: u32) -> [f64; N] {
        let parts = &self.0[micro_batch as usize];
        let mut all = [0.0; N];
        for place in &parts.places[..parts.used] {
            all.iter_mut().zip(place.numbers()).for_each(|(all, part)| *all += part);
        }
        all
    }
}
