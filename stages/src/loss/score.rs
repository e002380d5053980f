//! What a loss gives for a micro-batch: a sum with a weight, and what it measured beside that.

use super::metric::Measured;

/// The most metrics of a loss.
const MOST: usize = 4;

/// A summed loss and its weight, and the metrics of the loss.
///
/// ```
/// use pipewright_stages::loss::{Metric, Score};
///
/// // A name is checked when the program is compiled.
/// const ABSOLUTE_ERROR: Metric = Metric::mean("absolute_error");
///
/// // Of four numbers: the summed loss is 0.5, and the summed distance from the targets is 2.
/// let mut score = Score::new(0.5, 4.0).with([ABSOLUTE_ERROR.of(2.0, 4.0)]);
/// score.add(Score::new(1.5, 4.0).with([ABSOLUTE_ERROR.of(4.0, 4.0)]));
/// assert_eq!(score.mean(), 0.25);
/// assert_eq!(score.metrics.get("absolute_error"), Some(0.75));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Score {
    /// The loss summed over the counted targets.
    pub sum: f64,
    /// How many targets were counted: tokens, rows or numbers.
    pub weight: f64,
    /// What the loss measured beside that.
    pub metrics: Metrics,
}

impl Score {
    /// A score without metrics.
    pub fn new(sum: f64, weight: f64) -> Self {
        let metrics = Metrics::default();
        Self { sum, weight, metrics }
    }

    /// The score with these metrics, at most four. More do not compile.
    #[must_use]
    pub fn with<const N: usize>(self, metrics: [Measured; N]) -> Self {
        const { assert!(N <= MOST, "a score has at most four metrics") };
        let mut all = [None; MOST];
        all[..N].copy_from_slice(&metrics.map(Some));
        let metrics = Metrics(all);
        Self { metrics, ..self }
    }

    /// The mean loss over the counted targets; NaN if there are none, as in PyTorch.
    pub fn mean(&self) -> f64 {
        match self.weight > 0.0 {
            true => self.sum / self.weight,
            false => f64::NAN,
        }
    }

    /// Adds another score of the same loss to this one.
    pub fn add(&mut self, other: Score) {
        self.sum += other.sum;
        self.weight += other.weight;
        for measured in other.metrics.iter() {
            self.metrics.add(measured);
        }
    }
}

/// The metrics of a score, in the order in which the loss gave them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Metrics([Option<Measured>; MOST]);

impl Metrics {
    /// All metrics.
    pub fn iter(&self) -> impl Iterator<Item = &Measured> {
        self.0.iter().flatten()
    }

    /// The value of the metric with this name. `None`: there is no such metric, or nothing was counted for
    /// it.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.iter().find(|measured| measured.name() == name)?.value()
    }

    /// Adds the sums of one metric. A loss has the same metrics in each score, so there is a place for it.
    fn add(&mut self, other: &Measured) {
        for place in &mut self.0 {
            match place {
                Some(measured) if measured.name() != other.name() => {}
                Some(measured) => return measured.add(other),
                None => {
                    *place = Some(*other);
                    return;
                }
            }
        }
    }
}
