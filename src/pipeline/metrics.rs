//! Reports the step's numbers to the metrics recorder of the program, if it has installed one.

use metrics::{counter, gauge, histogram};

use super::StepReport;

pub(super) fn record(report: &StepReport) {
    counter!("pipewright_steps_total").increment(1);
    gauge!("pipewright_loss").set(report.loss);
    gauge!("pipewright_grad_norm").set(report.grad_norm);
    gauge!("pipewright_learning_rate").set(report.learning_rate);
    gauge!("pipewright_tokens_per_second").set(report.rate());
    histogram!("pipewright_step_seconds").record(report.seconds);
    for (index, rank) in report.ranks.iter().enumerate() {
        let label = index.to_string();
        gauge!("pipewright_rank_busy_seconds", "rank" => label.clone()).set(rank.busy);
        gauge!("pipewright_rank_waiting_seconds", "rank" => label.clone()).set(rank.waiting);
        gauge!("pipewright_rank_bubble", "rank" => label.clone()).set(rank.bubble);
        gauge!("pipewright_rank_in_flight", "rank" => label.clone()).set(f64::from(rank.in_flight));
        gauge!("pipewright_rank_activation_peak_bytes", "rank" => label).set(rank.peak_bytes as f64);
    }
}
