//! The memory of each rank, as a table for people.

use crate::plan::RankMemory;
use crate::stages::units::in_words;

/// The estimate for each rank of a replica, and the sum over so many replicas.
pub(super) fn table(ranks: &[RankMemory], replicas: u32) -> String {
    let mut text = line(
        "memory",
        [
            "weights",
            "gradients",
            "optimizer",
            "copies",
            "activations",
            "buffers",
            "all",
        ]
        .map(str::to_owned),
    );
    for (rank, held) in ranks.iter().enumerate() {
        let parts = [
            held.weights,
            held.gradients,
            held.optimizer,
            held.copies,
            held.activations,
            held.buffers,
            held.total(),
        ];
        text += &line(&format!("rank {rank}"), parts.map(in_words));
    }
    let copies: f64 = ranks.iter().map(|held| held.copies).sum();
    let all: f64 = ranks.iter().map(RankMemory::total).sum();
    let sum = in_words(f64::from(replicas) * (all - copies) + copies);
    text + &match replicas {
        1 => format!("{sum} in all, estimated\n"),
        _ => format!("{sum} in all {replicas} replicas, estimated\n"),
    }
}

fn line(name: &str, parts: [String; 7]) -> String {
    let parts = parts.map(|part| format!("{part:>12}"));
    format!("{name:<9}{}\n", parts.concat())
}
