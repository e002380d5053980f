//! The memory that ranks need so that they can be built again after a failure.

use crate::id::Rank;
use crate::plan::StageMemory;
use crate::schedule::Schedule;

/// The most bytes for each rank that processes keep so that one that dies can be replaced: two snapshots of
/// its own, and two of a rank of another process.
pub fn kept_for_others(schedule: &Schedule, stages: &[StageMemory]) -> Vec<f64> {
    let mut snapshots = vec![0.0; schedule.ranks() as usize];
    for (rank, stage) in schedule.placement().iter().zip(stages) {
        snapshots[rank.index()] += stage.weights + stage.optimizer;
    }
    let largest = snapshots.iter().copied().fold(0.0, f64::max);
    snapshots.into_iter().map(|own| 2.0 * (own + largest)).collect()
}

/// The most bytes that each rank keeps: a snapshot of its weights and their optimizer state, and what it has
/// received since. A rank makes a snapshot after `every` steps, or earlier, when what it has received takes
/// as much memory as a snapshot. `from_replicas`: how often a rank receives the bytes of its gradients in a
/// step, from the ranks with the same stages in other replicas.
pub fn kept_for_restarts(
    schedule: &Schedule,
    stages: &[StageMemory],
    from_replicas: f64,
    every: u32,
) -> Vec<f64> {
    let rank_of: Vec<usize> = schedule.placement().iter().map(Rank::index).collect();
    let mut snapshots = vec![0.0; schedule.ranks() as usize];
    let mut received = snapshots.clone();
    for (index, stage) in stages.iter().enumerate() {
        let rank = rank_of[index];
        snapshots[rank] += stage.weights + stage.optimizer;
        received[rank] += from_replicas * stage.gradients;
        if let Some(&next) = rank_of.get(index + 1).filter(|&&next| next != rank) {
            // The activations go there, and as large gradients come back.
            let wires = f64::from(schedule.micro_batches()) * stage.output;
            received[next] += wires;
            received[rank] += wires;
        }
    }
    let kept =
        |(snapshot, received): (f64, f64)| snapshot + (f64::from(every) * received).min(snapshot + received);
    snapshots.into_iter().zip(received).map(kept).collect()
}
