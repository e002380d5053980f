//! Reports the step's numbers to the metrics recorder of the program, if it has installed one.

use std::time::Duration;

use metrics::{Label, counter, gauge, histogram};

use super::StepReport;
use crate::mesh::{Axis, Mesh};

/// `process`: the number of this process, of which a report may have the ranks alone.
pub(super) fn record(report: &StepReport, mesh: &Mesh, process: u32) {
    counter!("pipewright_steps_total").increment(1);
    counter!("pipewright_restarts_total").increment(report.restarts.len() as u64);
    gauge!("pipewright_loss").set(report.loss);
    gauge!("pipewright_grad_norm").set(report.grad_norm);
    gauge!("pipewright_learning_rate").set(report.learning_rate);
    gauge!("pipewright_tokens_per_second").set(report.rate());
    histogram!("pipewright_step_seconds").record(report.seconds);
    let ranks: Vec<_> = match report.ranks.len() as u32 == mesh.world_size() {
        true => mesh.world().collect(),
        false => mesh.ranks_of(process).collect(),
    };
    for (world_rank, rank) in ranks.into_iter().zip(&report.ranks) {
        let at = mesh.coordinate(world_rank);
        let mut labels = vec![Label::new("rank", at.rank.to_string())];
        if mesh.size(Axis::Data) > 1 {
            labels.push(Label::new("replica", at.replica.to_string()));
        }
        let of_rank = || labels.iter();
        if mesh.size(Axis::Data) > 1 {
            gauge!("pipewright_rank_reducing_seconds", of_rank()).set(rank.reducing);
            gauge!("pipewright_rank_staleness", of_rank()).set(f64::from(rank.staleness));
        }
        gauge!("pipewright_rank_busy_seconds", of_rank()).set(rank.busy);
        gauge!("pipewright_rank_waiting_seconds", of_rank()).set(rank.waiting);
        gauge!("pipewright_rank_bubble", of_rank()).set(rank.bubble);
        gauge!("pipewright_rank_in_flight", of_rank()).set(f64::from(rank.in_flight));
        gauge!("pipewright_rank_activation_peak_bytes", of_rank()).set(rank.peak_bytes as f64);
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
