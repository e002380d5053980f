//! What a step and an evaluation report to the caller.

use std::fmt;

use pipewright_stages::loss::{Metrics, Score};

use crate::worker::{RankReport, Restart};

/// The report of one training step. It is the same for all stages and schedules, and in every process. Of a
/// parameter server whose weights may be stale, only the loss and the other numbers of its step are.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct StepReport {
    /// The step, from 0.
    pub step: u64,
    /// The step to which the loss, its metrics, the gradient's norm and the weight belong: this one, unless
    /// weights may be stale. Then it is the newest step that all ranks know of, at most `max_staleness` steps
    /// before.
    pub loss_step: u64,
    /// The mean loss over all targets of the batch, in nats for cross-entropy. NaN if it has no target.
    pub loss: f64,
    /// What the loss measured beside itself, such as the accuracy.
    pub metrics: Metrics,
    /// The global norm of the mean gradient, before clipping.
    pub grad_norm: f64,
    /// The learning rate used.
    pub learning_rate: f64,
    /// The targets counted: tokens, rows, or numbers.
    pub weight: f64,
    /// Seconds from the call to its return, in this process. Without a barrier, from the end of the step
    /// before, if this one had begun then. Only this number, and the bubbles that are
    /// computed from it, differ between processes.
    pub seconds: f64,
    /// Each rank's share, in the order of their numbers: over all replicas. If weights may be stale, the
    /// shares of this process only, unless the step was traced.
    pub ranks: Vec<RankReport>,
    /// Whether the step had to be clipped when the next one had begun, so that both run again. Only without a
    /// [barrier](super::PipelineBuilder::barrier).
    pub taken_back: bool,
    /// The ranks that failed in this step and were built again, if they may be
    /// ([`PipelineBuilder::restarts`](super::PipelineBuilder::restarts)).
    pub restarts: Vec<Restart>,
}

impl StepReport {
    /// Targets (for a language model: tokens) a second.
    pub fn rate(&self) -> f64 {
        self.weight / self.seconds
    }

    /// The share of the step in which ranks only added up gradients over replicas, or exchanged new weights
    /// of a sharded optimizer: the largest of all ranks.
    pub fn reducing(&self) -> f64 {
        let most = self.ranks.iter().map(|rank| rank.reducing).fold(0.0, f64::max);
        most / self.seconds
    }

    /// The share of the step in which ranks waited for other shards of their layers: the largest of all
    /// ranks.
    pub fn shard_waiting(&self) -> f64 {
        let most = self.ranks.iter().map(|rank| rank.shard_waiting).fold(0.0, f64::max);
        most / self.seconds
    }

    /// How many earlier steps' updates the weights of this one lacked: the most of all ranks.
    pub fn staleness(&self) -> u32 {
        self.ranks.iter().map(|rank| rank.staleness).max().unwrap_or(0)
    }

    /// The idle share of the step, averaged over the ranks.
    pub fn bubble(&self) -> f64 {
        self.ranks.iter().map(|rank| rank.bubble).sum::<f64>() / self.ranks.len() as f64
    }
}

impl fmt::Display for StepReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "step {:>5}  {}  grad norm {:.3}  {:.0} targets/s  bubble {:.1} %",
            self.step,
            score(self.loss, self.weight, &self.metrics),
            self.grad_norm,
            self.rate(),
            100.0 * self.bubble()
        )
    }
}

/// The result of an evaluation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Evaluation {
    /// The mean loss over all targets. NaN if there is none.
    pub loss: f64,
    /// What the loss measured beside itself, such as the accuracy.
    pub metrics: Metrics,
    /// The targets counted.
    pub weight: f64,
}

impl Evaluation {
    /// The evaluation over the targets of several ones. Its loss is NaN if they have no target.
    pub fn of_all(each: &[Self]) -> Self {
        if let [one] = each {
            return *one;
        }
        let mut all = Score::default();
        for one in each {
            // A mean without targets is NaN.
            let sum = if one.weight > 0.0 { one.loss * one.weight } else { 0.0 };
            all.add(Score { sum, weight: one.weight, metrics: one.metrics });
        }
        Self { loss: all.mean(), metrics: all.metrics, weight: all.weight }
    }
}

impl fmt::Display for Evaluation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&score(self.loss, self.weight, &self.metrics))
    }
}

/// The loss of this weight of targets as text, with its metrics for which something was counted.
pub(crate) fn score(loss: f64, weight: f64, metrics: &Metrics) -> String {
    if weight == 0.0 {
        return "no loss: there is no target".to_owned();
    }
    let counted = metrics.iter().filter(|metric| metric.value().is_some());
    let metrics: String = counted.map(|metric| format!("  {metric}")).collect();
    format!("loss {loss:.4}{metrics}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_that_is_no_number_is_not_one_without_targets() {
        let said = |loss, weight| score(loss, weight, &Metrics::default());
        assert_eq!(said(f64::NAN, 256.0), "loss NaN");
        assert_eq!(said(f64::NAN, 0.0), "no loss: there is no target");
    }
}
