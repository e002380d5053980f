//! The memory of each rank, as a table for people.

use crate::plan::RankMemory;
use crate::stages::units::in_words;

/// The estimate rank by rank, and the sum.
pub(super) fn table(ranks: &[RankMemory]) -> String {
    let mut text = line(
        "memory",
        [
            "weights",
            "gradients",
            "optimizer",
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
            held.activations,
            held.buffers,
            held.total(),
        ];
        text += &line(&format!("rank {rank}"), parts.map(in_words));
    }
    let all: f64 = ranks.iter().map(RankMemory::total).sum();
    text + &format!("{} in all, estimated\n", in_words(all))
}

fn line(name: &str, parts: [String; 6]) -> String {
    let parts = parts.map(|part| format!("{part:>12}"));
    format!("{name:<9}{}\n", parts.concat())
}
