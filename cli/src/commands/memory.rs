//! The memory of each rank, as a table for people.

use pipewright::plan::RankMemory;
use pipewright::stages::units::in_words;

/// The estimate for a shard of each rank of a replica, and the sum over all replicas and shards.
pub(super) fn table(ranks: &[RankMemory], [replicas, shards]: [u32; 2]) -> String {
    let titles =
        ["weights", "gradients", "optimizer", "copies", "activations", "buffers", "all", "on the host"];
    // Only where ranks on GPUs have something on the host there is a last column.
    let some = ranks.iter().any(|held| held.on_host() > 0.0);
    let columns = titles.len() - usize::from(!some);
    let mut text = line("memory", &titles.map(str::to_owned)[..columns]);
    for (rank, held) in ranks.iter().enumerate() {
        let parts = [
            held.weights,
            held.gradients,
            held.optimizer,
            held.copies,
            held.activations,
            held.buffers,
            held.total(),
            held.on_host(),
        ];
        text += &line(&format!("rank {rank}"), &parts.map(in_words)[..columns]);
    }
    let copies: f64 = ranks.iter().map(|held| held.copies).sum();
    let all: f64 = ranks.iter().map(RankMemory::total).sum();
    let shards_in_all = f64::from(replicas) * f64::from(shards);
    let sum = in_words(shards_in_all * (all - copies) + f64::from(shards) * copies);
    text + &match (replicas, shards) {
        (1, 1) => format!("{sum} in all, estimated\n"),
        (_, 1) => format!("{sum} in all {replicas} replicas, estimated\n"),
        (1, _) => format!("{sum} in all, with {shards} shards of each rank, estimated\n"),
        _ => format!("{sum} in all {replicas} replicas, with {shards} shards of each rank, estimated\n"),
    }
}

fn line(name: &str, parts: &[String]) -> String {
    let parts: String = parts.iter().map(|part| format!("{part:>12}")).collect();
    format!("{name:<9}{parts}\n")
}
