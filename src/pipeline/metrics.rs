//! Reports the step's numbers to the metrics recorder of the program, if it has installed one.

use std::collections::HashSet;
use std::time::Duration;

use metrics::{Label, counter, gauge, histogram};

use super::{Evaluation, StepReport};
use crate::mesh::{Mesh, RankName};
use crate::stages::loss::Metrics;
use crate::worker::RankReport;

/// `process`: the number of this process. A report may have its ranks alone.
pub(super) fn record(report: &StepReport, mesh: &Mesh, process: u32) {
    counter!("pipewright_steps_total").increment(1);
    counter!("pipewright_restarts_total").increment(report.restarts.len() as u64);
    gauge!("pipewright_loss").set(report.loss);
    gauge!("pipewright_grad_norm").set(report.grad_norm);
    gauge!("pipewright_learning_rate").set(report.learning_rate);
    gauge!("pipewright_targets_per_second").set(report.rate());
    histogram!("pipewright_step_seconds").record(report.seconds);
    measured("pipewright_metric", &report.metrics);
    let ranks: Vec<_> = match report.ranks.len() as u32 == mesh.world_size() {
        true => mesh.world().collect(),
        false => mesh.ranks_of(process).collect(),
    };
    for (world_rank, rank) in ranks.into_iter().zip(&report.ranks) {
        of_rank(mesh.name(world_rank), rank);
    }
}

fn of_rank(name: RankName, rank: &RankReport) {
    let mut labels = vec![Label::new("rank", name.rank.to_string())];
    labels.extend(name.replica.map(|replica| Label::new("replica", replica.to_string())));
    labels.extend(name.shard.map(|shard| Label::new("shard", shard.to_string())));
    let of_rank = || labels.iter();
    if name.shard.is_some() {
        gauge!("pipewright_rank_shard_waiting_seconds", of_rank()).set(rank.shard_waiting);
    }
    if name.replica.is_some() {
        gauge!("pipewright_rank_reducing_seconds", of_rank()).set(rank.reducing);
        gauge!("pipewright_rank_staleness", of_rank()).set(f64::from(rank.staleness));
    }
    gauge!("pipewright_rank_busy_seconds", of_rank()).set(rank.busy);
    gauge!("pipewright_rank_waiting_seconds", of_rank()).set(rank.waiting);
    gauge!("pipewright_rank_bubble", of_rank()).set(rank.bubble);
    gauge!("pipewright_rank_in_flight", of_rank()).set(f64::from(rank.in_flight));
    gauge!("pipewright_rank_activation_peak_bytes", of_rank()).set(rank.peak_bytes as f64);
}

/// The model was cut elsewhere. In another mesh ranks have other names: with the old ones all is 0 from then
/// on, so that sums over ranks are right.
pub(super) fn recut(seconds: f64, [before, now]: [&Mesh; 2]) {
    counter!("pipewright_recuts_total").increment(1);
    histogram!("pipewright_recut_seconds").record(seconds);
    let names = |mesh: &Mesh| mesh.world().map(|rank| mesh.name(rank)).collect::<HashSet<_>>();
    for gone in names(before).difference(&names(now)) {
        of_rank(*gone, &RankReport::default());
    }
}

/// A validation of a run is done.
pub(crate) fn validated(evaluation: &Evaluation) {
    gauge!("pipewright_validation_loss").set(evaluation.loss);
    measured("pipewright_validation_metric", &evaluation.metrics);
}

/// The metrics of the loss, each with its name as a label.
fn measured(gauges: &'static str, metrics: &Metrics) {
    for metric in metrics.iter() {
        if let Some(value) = metric.value() {
            gauge!(gauges, "name" => metric.name().to_owned()).set(value);
        }
    }
}

/// This process has joined its run again.
pub(super) fn rejoined() {
    counter!("pipewright_rejoins_total").increment(1);
}

/// How long the steps stood still for a checkpoint, and for how much of that they waited for the one before.
pub(super) fn stalled(all: Duration, waited: Duration) {
    histogram!("pipewright_checkpoint_stall_seconds").record(all.as_secs_f64());
    histogram!("pipewright_checkpoint_wait_seconds").record(waited.as_secs_f64());
}
