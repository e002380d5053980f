//! What has to hold of a parameter server whose weights may be stale: every step becomes an update, once and
//! in order, and when all have come together, all replicas have the same weights.

use std::ops::Range;

use super::*;

/// What the layers and optimizers of all ranks have seen.
#[derive(Default)]
pub(crate) struct Settled(Mutex<Seen>);

#[derive(Default)]
struct Seen {
    /// By layer and the rank that owns it, or a part of it: the steps of its updates, in order.
    updates: BTreeMap<(usize, usize), Vec<u64>>,
    /// By layer: the weights with which it evaluates.
    weights: BTreeMap<usize, Vec<u32>>,
    /// A layer whose weights differ between two replicas.
    differs: Option<usize>,
}

impl Settled {
    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A rank updates a layer, or a part of it.
    pub(crate) fn updates(&self, rank: usize, layer: usize, step: u64) {
        let mut seen = self.lock();
        let steps = seen.updates.entry((layer, rank)).or_default();
        if steps.last() != Some(&step) {
            steps.push(step);
        }
    }

    /// A replica's layer evaluates with these weights.
    pub(crate) fn evaluates(&self, layer: usize, weights: &[f32]) {
        let mut seen = self.lock();
        let bits: Vec<u32> = weights.iter().map(|weight| weight.to_bits()).collect();
        if *seen.weights.entry(layer).or_insert_with(|| bits.clone()) != bits {
            seen.differs = Some(layer);
        }
    }

    /// Other weights follow: from a further step, or from a checkpoint.
    pub(crate) fn weights_change(&self) {
        self.lock().weights.clear();
    }

    /// Earlier updates are undone.
    pub(crate) fn forget_updates(&self) {
        self.lock().updates.clear();
    }

    /// Judges what was seen, after an evaluation. Each of `layers` layers has had the updates of these steps.
    pub(crate) fn judge(&self, layers: usize, steps: Range<u64>) -> Result<(), String> {
        let seen = self.lock();
        if let Some(layer) = seen.differs {
            return Err(format!("replicas evaluate layer {layer} with different weights"));
        }
        if seen.weights.len() != layers {
            return Err(format!("only these layers evaluate: {:?}", seen.weights.keys()));
        }
        let all: Vec<u64> = steps.collect();
        let wrong = seen.updates.iter().find(|(_, steps)| **steps != all);
        if let Some(((layer, rank), steps)) = wrong {
            return Err(format!("rank {rank} has updated layer {layer} in steps {steps:?}, not {all:?}"));
        }
        let is_updated = |layer: usize| seen.updates.keys().any(|(of, _)| *of == layer);
        match (0..layers).find(|layer| !all.is_empty() && !is_updated(*layer)) {
            Some(layer) => Err(format!("nobody has updated layer {layer}")),
            None => Ok(()),
        }
    }
}
