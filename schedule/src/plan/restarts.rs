//! The memory that ranks need so that they can be built again after a failure.

use crate::id::Rank;
use crate::plan::StageMemory;
use crate::schedule::Schedule;

/// What is kept for restarts, and how often.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Restarts {
    /// A rank makes a snapshot of what training changes after this number of steps, or earlier, when what it
    /// has received since the last one takes as much memory as a snapshot.
    pub every: u32,
    /// How often a rank receives the bytes of its gradients in a step, from the ranks with the same stages in
    /// other replicas.
    pub from_replicas: f64,
    /// Whether processes keep snapshots so that one that dies can be replaced: two of each of their own
    /// ranks, and two of each rank of another process. A restart begins with the newest of its own.
    pub replaces: bool,
}

/// The most that a rank keeps for restarts. In bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct KeptForRestarts {
    /// Snapshots. They are on the host, also the snapshots of a rank on a GPU.
    pub snapshots: f64,
    /// What it has received since its last snapshot.
    pub received: f64,
}

/// What each rank keeps. A process is expected to take the snapshots of another one within `every` steps.
/// Frozen weights are in no snapshot: it is expected that a rank that is built again has the same ones.
pub fn kept_for_restarts(
    schedule: &Schedule,
    stages: &[StageMemory],
    restarts: Restarts,
) -> Vec<KeptForRestarts> {
    let Restarts { every, from_replicas, replaces } = restarts;
    let rank_of: Vec<usize> = schedule.placement().iter().map(Rank::index).collect();
    let mut snapshots = vec![0.0; schedule.ranks() as usize];
    let mut received = snapshots.clone();
    for (index, stage) in stages.iter().enumerate() {
        let rank = rank_of[index];
        snapshots[rank] += stage.snapshot;
        received[rank] += from_replicas * stage.gradients;
        if let Some(&next) = rank_of.get(index + 1).filter(|&&next| next != rank) {
            // The activations go there, and as large gradients come back.
            let wires = f64::from(schedule.micro_batches()) * stage.output;
            received[next] += wires;
            received[rank] += wires;
        }
    }
    let largest = snapshots.iter().copied().fold(0.0, f64::max);
    let kept = |(snapshot, received): (f64, f64)| {
        let is_early = f64::from(every) * received >= snapshot + received;
        KeptForRestarts {
            snapshots: match (replaces, is_early) {
                (false, _) => snapshot,
                // The newest of the process is the rank's own.
                (true, false) => 2.0 * (snapshot + largest),
                (true, true) => 2.0 * (snapshot + largest) + snapshot,
            },
            received: (f64::from(every) * received).min(snapshot + received),
        }
    };
    snapshots.into_iter().zip(received).map(kept).collect()
}
