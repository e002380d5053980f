//! Pairs of answers, one preferred to the other: where they stand in a micro-batch, and how they are judged.

use std::ops::Range;

use super::base::refused;
use super::{Metric, Score};
use crate::cpu::math::{exp, sigmoid};
use crate::error::{Error, Result};
use crate::shape::{Kind, Shape};
use crate::tensor::Tensor;

/// The label of a token that is no part of an answer.
pub(super) const NO_LABEL: u32 = u32::MAX;

/// How many ids of a row of the target follow its labels.
pub(super) const REFERENCE: usize = 2;

const MARGIN: Metric = Metric::mean("margin");
const CHOSEN: Metric = Metric::mean("chosen");
const REJECTED: Metric = Metric::mean("rejected");

/// What is added up over pairs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Sums {
    pub(super) loss: f64,
    /// How many pairs there are.
    pub(super) pairs: f64,
    /// In how many pairs the preferred answer is ahead.
    pub(super) right: f64,
    /// By how much it is ahead.
    pub(super) margin: f64,
    /// What the model gives the preferred answers, and the others.
    pub(super) given: [f64; 2],
}

impl Sums {
    /// The number of numbers, where a GPU adds them up.
    pub(super) const COUNT: usize = 6;

    /// The sums, as a GPU has added them up.
    pub(super) fn of([loss, pairs, right, margin, chosen, rejected]: [f64; Self::COUNT]) -> Self {
        Self { loss, pairs, right, margin, given: [chosen, rejected] }
    }

    /// Adds a pair.
    pub(super) fn add(&mut self, loss: f64, margin: f64, given: [f64; 2]) {
        self.loss += loss;
        self.pairs += 1.0;
        self.right += f64::from(u8::from(margin > 0.0));
        self.margin += margin;
        self.given.iter_mut().zip(given).for_each(|(sum, one)| *sum += one);
    }

    /// The score of these pairs.
    pub(super) fn score(&self) -> Score {
        let Self { loss, pairs, right, margin, given: [chosen, rejected] } = *self;
        Score::new(loss, pairs).with([
            Metric::ACCURACY.of(right, pairs),
            MARGIN.of(margin, pairs),
            CHOSEN.of(chosen, pairs),
            REJECTED.of(rejected, pairs),
        ])
    }
}

/// The loss of a margin `x`, `-(1 - e) ln sigmoid(x) - e ln sigmoid(-x)` for a smoothing `e`, and its slope.
pub(super) fn logistic(x: f64, smoothing: f32) -> (f64, f32) {
    let rest = (-x.abs()).exp().ln_1p();
    let (ahead, behind) = ((-x).max(0.0) + rest, x.max(0.0) + rest);
    let share = f64::from(smoothing);
    let [likely, unlikely] = sigmoid(exp(-(x as f32).clamp(-80.0, 80.0)));
    ((1.0 - share) * ahead + share * behind, smoothing * likely - (1.0 - smoothing) * unlikely)
}

/// Fails unless a target has two rows for each pair: `ids[rows, time + 2]`, for outputs of `[rows, time]`.
pub(super) fn check_pairs(rows: usize, time: usize, target: &Shape) -> Result<()> {
    let fits = target.kind() == Kind::Ids && target.dims() == [rows, time + REFERENCE];
    if !fits || !rows.is_multiple_of(2) {
        let text = format!(
            "expected ids[{rows}, {}] as the target, with an even number of rows, got {target}: an answer \
             that is preferred and one that is rejected follow each other, and two ids with a reference \
             follow the labels of each",
            time + REFERENCE
        );
        return Err(refused(Error::new(text)));
    }
    Ok(())
}

/// How many labels a row of a target has.
pub(super) fn time_of(target: &Tensor) -> usize {
    target.shape().last() - REFERENCE
}

/// Some of the labels of a target, as ids of these dimensions. The labels of all its rows are counted one
/// after the other.
pub(super) fn labels_of(target: &Tensor, which: Range<usize>, dims: &[usize]) -> Tensor {
    let (time, width) = (time_of(target), target.shape().last());
    let mut labels = Tensor::scratch_ids(dims);
    for (label, at) in labels.ids_mut().iter_mut().zip(which) {
        *label = target.ids()[at / time * width + at % time];
    }
    labels
}

/// The ids with the references of all rows of a target.
pub(super) fn references_of(target: &Tensor) -> impl Iterator<Item = [u32; REFERENCE]> {
    let rows = target.ids().chunks_exact(target.shape().last());
    rows.map(|row| row[row.len() - REFERENCE..].try_into().expect("as many"))
}

/// A reference from its ids.
pub(super) fn reference_of([low, high]: [u32; REFERENCE]) -> f64 {
    f64::from_bits(u64::from(high) << 32 | u64::from(low))
}
