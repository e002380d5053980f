//! `metrics.jsonl`: a line a step. Lines are only added.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::files::JsonLines;
use super::picture::Curve;
use crate::Result;
use crate::error::RunError;
use crate::pipeline::StepReport;
use crate::run::validation::Validated;
use crate::stages::loss;

/// Before the names of numbers of a validation.
const VALIDATION: &str = "validation_";

/// The names that a line has for other numbers than metrics of the loss.
const NAMES: [&str; 17] = [
    "step",
    "loss",
    "grad_norm",
    "lr",
    "tokens",
    "seconds",
    "tokens_per_second",
    "bubble",
    "reducing",
    "busy",
    "waiting",
    "shard_waiting",
    "peak_bytes",
    "loss_step",
    "staleness",
    "epsilon",
    "sequences",
];

/// The file of a run's numbers, and the losses for its picture.
#[derive(Debug)]
pub(super) struct Metrics {
    pub(super) lines: JsonLines,
    pub(super) curve: Curve,
}

impl Metrics {
    /// Opens the file to continue from `step`. Lines of this step and later ones are removed.
    pub(in crate::run) fn open(path: PathBuf, step: u64) -> Result<Self> {
        let mut curve = Curve::default();
        let lines = JsonLines::open(path, |line| {
            let Ok(losses) = serde_json::from_slice::<Losses>(line) else {
                return true;
            };
            if losses.step >= step {
                return false;
            }
            curve.add(losses.step, losses.loss, losses.validation_loss);
            true
        })?;
        Ok(Self { lines, curve })
    }

    /// Adds a line. If that fails, the file ends with the previous line.
    pub(in crate::run) fn add(&mut self, line: &MetricsLine) -> Result<()> {
        self.curve.add(line.step, line.loss, line.validation_loss);
        self.lines.add(line)
    }
}

/// The part of a line that is read.
#[derive(Deserialize)]
struct Losses {
    step: u64,
    loss: Option<f64>,
    validation_loss: Option<f64>,
}

/// A line of `metrics.jsonl`: the numbers of a step.
#[derive(Debug, Serialize, Deserialize)]
pub struct MetricsLine {
    /// The step, from 0.
    pub step: u64,
    /// `None`, in the file `null`: the step had no target.
    pub loss: Option<f64>,
    /// The norm of all gradients, before clipping.
    pub grad_norm: f64,
    /// The learning rate.
    pub lr: f64,
    /// How many targets counted in the loss. The file calls them tokens, also where they are rows.
    #[serde(rename = "tokens")]
    pub targets: u64,
    /// How long the step took.
    pub seconds: f64,
    /// The targets of a second.
    #[serde(rename = "tokens_per_second")]
    pub targets_per_second: f64,
    /// The idle share, averaged over the ranks.
    pub bubble: f64,
    /// Only with several replicas: the share in which a rank only added up gradients, the largest of all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reducing: Option<f64>,
    /// Seconds of work, one number a rank.
    #[serde(default)]
    pub busy: Vec<f64>,
    /// Seconds of waiting, one number a rank.
    #[serde(default)]
    pub waiting: Vec<f64>,
    /// Only with several shards: the part of `waiting` for other shards.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shard_waiting: Vec<f64>,
    /// The most bytes held for backward, one number a rank.
    pub peak_bytes: Vec<u64>,
    /// Only if weights may be stale: the step that has the loss and the norm.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss_step: Option<u64>,
    /// Only if weights may be stale: how many updates this process's weights missed in this step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub staleness: Option<u32>,
    /// Only with differential privacy: what was spent up to the end of this step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epsilon: Option<f64>,
    /// The loss of a validation after this step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub validation_loss: Option<f64>,
    /// Only with several sources of data: the loss of a validation on each.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub validation_losses: BTreeMap<String, f64>,
    /// Only with several sources of data: how many sequences the step took from each.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sequences: BTreeMap<String, u64>,
    /// The metrics of the loss by their names, also the metrics of a validation.
    #[serde(flatten)]
    metrics: BTreeMap<String, Value>,
}

impl MetricsLine {
    /// The line of a step of this many replicas and shards. `may_be_stale`: whether there is a server whose
    /// weights may be stale.
    ///
    /// # Errors
    /// [`RunError`] for a metric with the name of another number of a step.
    pub(in crate::run) fn new(
        report: &StepReport,
        [replicas, shards]: [u32; 2],
        may_be_stale: bool,
        (validation, sequences): (Option<&Validated>, Vec<(String, u64)>),
    ) -> Result<Self> {
        let mut metrics = BTreeMap::new();
        add(&mut metrics, "", &report.metrics)?;
        if let Some(validation) = validation {
            add(&mut metrics, VALIDATION, &validation.all.metrics)?;
        }
        Ok(Self {
            step: report.step,
            loss: of_targets(report.loss),
            grad_norm: report.grad_norm,
            lr: report.learning_rate,
            targets: report.weight as u64,
            seconds: report.seconds,
            targets_per_second: report.rate(),
            bubble: report.bubble(),
            reducing: (replicas > 1).then(|| report.reducing()),
            busy: report.ranks.iter().map(|rank| rank.busy).collect(),
            waiting: report.ranks.iter().map(|rank| rank.waiting).collect(),
            shard_waiting: match shards {
                1 => Vec::new(),
                _ => report.ranks.iter().map(|rank| rank.shard_waiting).collect(),
            },
            peak_bytes: report.ranks.iter().map(|rank| rank.peak_bytes).collect(),
            loss_step: may_be_stale.then_some(report.loss_step),
            staleness: may_be_stale.then(|| report.staleness()),
            epsilon: None,
            validation_loss: validation.and_then(|validation| of_targets(validation.all.loss)),
            validation_losses: validation.map_or_else(BTreeMap::new, |validation| {
                let each = validation.each.iter();
                each.filter_map(|(name, one)| Some((name.clone(), of_targets(one.loss)?))).collect()
            }),
            sequences: sequences.into_iter().collect(),
            metrics,
        })
    }

    /// The metrics: the name of each, whether it is of a validation, and its value. With several sources of
    /// data, the validation loss of each is one of them.
    pub fn metrics(&self) -> impl Iterator<Item = (String, bool, f64)> {
        let metrics = self.metrics.iter().filter_map(|(key, value)| {
            let of_validation = key.strip_prefix(VALIDATION);
            Some((of_validation.unwrap_or(key).to_owned(), of_validation.is_some(), value.as_f64()?))
        });
        let losses = self.validation_losses.iter();
        metrics.chain(losses.map(|(source, loss)| (format!("loss of {source}"), true, *loss)))
    }
}

/// Adds the metrics of a loss for which something was counted. `before` stands before their names.
fn add(to: &mut BTreeMap<String, Value>, before: &str, metrics: &loss::Metrics) -> Result<()> {
    for metric in metrics.iter() {
        let name = metric.name();
        let key = format!("{before}{name}");
        let taken = NAMES.contains(&name) || name.starts_with(VALIDATION) || to.contains_key(&key);
        if taken {
            return Err(RunError::new(format!(
                "a metric of the loss is named `{name}`, and metrics.jsonl has another number of that name: \
                 give the metric another name"
            ))
            .into());
        }
        if let Some(value) = metric.value() {
            to.insert(key, value.into());
        }
    }
    Ok(())
}

/// A mean loss, if there were targets.
fn of_targets(loss: f64) -> Option<f64> {
    Some(loss).filter(|loss| !loss.is_nan())
}
