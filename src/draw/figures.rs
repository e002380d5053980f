//! The figures in a picture's heading.

use crate::schedule::{Timed, Timeline};

/// The figures of a timeline.
#[derive(Clone, Copy, Debug)]
pub(super) struct Figures {
    /// From 0 to the end of the last pass on any rank.
    pub(super) makespan: f64,
    /// From 0 to the end of the last pass or reduction.
    pub(super) end: f64,
    /// The longest span of a rank, from its first start to its last end.
    pub(super) span: f64,
    /// The time that a rank spends in passes, on average.
    pub(super) work: f64,
    /// The part of `work` in which a rank waits for other shards, on average.
    pub(super) shard_waits: f64,
    /// The most memory a rank holds.
    pub(super) peak: f64,
    /// The first rank that holds it.
    pub(super) peak_rank: usize,
}

impl Figures {
    pub(super) fn of(timeline: &Timeline) -> Self {
        let rows = || timeline.ranks.iter();
        let work: f64 = rows().flatten().map(|pass| pass.end - pass.start).sum();
        let waits: f64 = timeline.shard_waits.iter().map(|wait| wait.end - wait.start).sum();
        let ranks = timeline.ranks.len().max(1) as f64;
        let (mut peak, mut peak_rank) = (0.0, 0);
        for (rank, row) in rows().enumerate() {
            let most = row.iter().map(|pass| pass.most).fold(0.0, f64::max);
            if most > peak {
                (peak, peak_rank) = (most, rank);
            }
        }
        let makespan = rows().map(|row| last_end(row)).fold(0.0, f64::max);
        let reductions = timeline.reductions.iter().map(|reduction| reduction.end);
        Self {
            makespan,
            end: reductions.fold(makespan, f64::max),
            span: rows().map(|row| span(row)).fold(0.0, f64::max),
            work: work / ranks,
            shard_waits: waits / ranks,
            peak,
            peak_rank,
        }
    }

    /// The idle share of a rank in this time, on average.
    pub(super) fn bubble(&self, time: f64) -> f64 {
        if time > 0.0 { (1.0 - self.work / time).max(0.0) } else { 0.0 }
    }
}

fn last_end(row: &[Timed]) -> f64 {
    row.last().map_or(0.0, |last| last.end)
}

fn span(row: &[Timed]) -> f64 {
    last_end(row) - row.first().map_or(0.0, |first| first.start)
}

/// The times from which on a rank holds how much: the end of each pass, and also its start where it holds
/// more only while it runs, or where activations have left or come back since the pass before.
pub(super) fn heights(row: &[Timed]) -> impl Iterator<Item = (f64, f64)> {
    let last = [0.0].into_iter().chain(row.iter().map(|pass| pass.held));
    row.iter().zip(last).flat_map(|(pass, last)| {
        let during = match pass.most > pass.before.max(pass.held) {
            true => pass.most,
            false => pass.before,
        };
        let start = (during != last).then_some((pass.start, during));
        start.into_iter().chain([(pass.end, pass.held)])
    })
}
