//! The scores of losses on GPUs.

use crate::cuda::{Pinned, Ptr};
use crate::error::Result;

/// The bytes of a partial score: the loss, the weight, how many were right.
pub(crate) const SCORE: usize = 24;

/// Room for the score of each micro-batch.
#[derive(Debug, Default)]
pub(crate) struct Scores(Vec<Option<Pinned>>);

impl Clone for Scores {
    /// Room for a clone of the loss. Scores that a GPU has not given yet stay with this one.
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl Scores {
    /// The address for a micro-batch's sum, weight and number of right predictions, `f64` each.
    pub(crate) fn place(&mut self, micro_batch: u32) -> Result<Ptr> {
        let index = micro_batch as usize;
        if self.0.len() <= index {
            self.0.resize_with(index + 1, || None);
        }
        let place = match self.0[index].take() {
            Some(place) => place,
            None => Pinned::new(size_of::<[f64; 3]>())?,
        };
        let at = place.at();
        self.0[index] = Some(place);
        Ok(at)
    }

    /// The sum, the weight and the number of right predictions of a micro-batch, once the GPU is done.
    pub(crate) fn numbers(&self, micro_batch: u32) -> [f64; 3] {
        let place = self.0[micro_batch as usize].as_ref();
        let numbers = place.expect("`place` came before").numbers();
        [numbers[0], numbers[1], numbers[2]]
    }
}
