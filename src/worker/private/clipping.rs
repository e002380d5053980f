//! What all ranks agree on before the gradients of micro-batches are added: by how much each is scaled.

use serde::{Deserialize, Serialize};

use crate::error::{FabricError, Result};
use crate::fabric::{Gathered, Transport, all_gather};
use crate::id::{MicroBatch, StageId, WorldRank};

/// What a rank tells all others of its micro-batches, before their gradients are added.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) enum Told {
    /// From a rank of the last stage: the weight of a micro-batch's loss.
    Weight(MicroBatch, f64),
    /// A sum of squares of a piece of a parameter's gradient.
    Square(Square),
}

/// A sum of squares of a piece of a parameter's gradient of one micro-batch.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Square {
    pub(super) micro_batch: MicroBatch,
    pub(super) stage: StageId,
    /// The parameter's place in the stage.
    pub(super) index: usize,
    /// The number of the sum among all sums of the parameter.
    pub(super) sum: usize,
    pub(super) square: f64,
}

/// What the ranks tell each other of their micro-batches, and the factors that follow. It is used again in
/// each step and keeps its memory.
#[derive(Debug, Default)]
pub(in crate::worker) struct Clipping {
    mine: Vec<u8>,
    all: Gathered,
    squares: Vec<Square>,
    /// By micro-batch of the batch.
    weights: Vec<f64>,
    norms: Vec<f64>,
    factors: Vec<f32>,
}

impl Clipping {
    /// Forgets the previous step.
    pub(super) fn begin(&mut self) {
        self.mine.clear();
    }

    pub(super) fn tell(&mut self, told: Told) {
        postcard::to_io(&told, &mut self.mine).expect("memory takes what is written");
    }

    /// Sends all ranks what this one tells, and hears what they tell of the batch's micro-batches.
    pub(super) fn exchange<W: 'static>(
        &mut self,
        transport: &mut dyn Transport<W>,
        micro_batches: u32,
    ) -> Result<()> {
        all_gather(transport, &self.mine, &mut self.all)?;
        self.weights.clear();
        self.weights.resize(micro_batches as usize, 0.0);
        let all = std::mem::take(&mut self.all);
        let heard = (0..).map(WorldRank).zip(all.ranks()).try_for_each(|(rank, told)| self.hear(rank, told));
        self.all = all;
        heard
    }

    /// Takes what a rank has told.
    fn hear(&mut self, rank: WorldRank, mut told: &[u8]) -> Result<()> {
        while !told.is_empty() {
            let (entry, rest) = postcard::take_from_bytes(told).map_err(|error| {
                FabricError::unreadable_part(format_args!("rank {rank}"), "clipping gradients", error)
            })?;
            let (Told::Weight(micro_batch, _) | Told::Square(Square { micro_batch, .. })) = entry;
            let count = self.weights.len();
            if micro_batch.index() >= count {
                let why = format!("it tells of micro-batch {micro_batch}, and a batch has {count}");
                let why = std::io::Error::other(why);
                return Err(FabricError::unreadable_part(
                    format_args!("rank {rank}"),
                    "clipping gradients",
                    why,
                )
                .into());
            }
            match entry {
                Told::Weight(micro_batch, weight) => self.weights[micro_batch.index()] = weight,
                Told::Square(square) => self.squares.push(square),
            }
            told = rest;
        }
        Ok(())
    }

    /// Computes the factor of each micro-batch of the batch. The squares are added in an order that depends
    /// on no rank: by stage, parameter and piece.
    pub(super) fn factors(&mut self, clip: f64) -> &[f32] {
        let place = |square: &Square| (square.micro_batch, square.stage, square.index, square.sum);
        self.squares.sort_unstable_by_key(place);
        self.norms.clear();
        self.norms.resize(self.weights.len(), 0.0);
        for square in self.squares.drain(..) {
            self.norms[square.micro_batch.index()] += square.square;
        }
        let samples = self.norms.iter().zip(&self.weights);
        let factors = samples.map(|(squares, weight)| factor(squares.sqrt(), *weight, clip) as f32);
        self.factors.clear();
        self.factors.extend(factors);
        &self.factors
    }
}

/// The factor for the gradient of a micro-batch's loss, which is a sum of this weight: then it is the
/// gradient of the mean, and its norm is at most `clip`. A gradient that is not finite stays so.
fn factor(norm: f64, weight: f64, clip: f64) -> f64 {
    match weight > 0.0 {
        true => (clip * weight / norm).min(1.0) / weight,
        false => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_that_tells_of_a_micro_batch_that_is_not_there_is_an_error() {
        let square = |micro_batch| Square { micro_batch, stage: StageId(0), index: 0, sum: 0, square: 1.0 };
        for (number, is_right) in [(1, true), (2, false), (u32::MAX, false)] {
            let micro_batch = MicroBatch(number);
            for told in [Told::Weight(micro_batch, 1.0), Told::Square(square(micro_batch))] {
                let mut clipping = Clipping { weights: vec![0.0; 2], ..Clipping::default() };
                let told = postcard::to_stdvec(&told).expect("memory takes it");
                let heard = clipping.hear(WorldRank(3), &told);
                assert_eq!(heard.is_ok(), is_right, "{heard:?}");
                if let Err(error) = heard {
                    assert!(error.to_string().contains("rank 3's part in `clipping gradients`"), "{error}");
                }
            }
        }
    }
}
