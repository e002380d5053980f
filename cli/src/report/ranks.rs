//! What each rank did, and what it held.

use super::record::Record;
use pipewright::draw::{Bars, Row, Segment};
use pipewright::stages::units::byte_unit;

const WIDTH: f64 = 420.0;

/// The time of each rank, if it is recorded.
pub(super) fn time(runs: &[Record]) -> Option<String> {
    let timed = |run: &Record| !run.steps.ranks.busy.is_empty() && run.steps.ranks.seconds > 0.0;
    if !runs.iter().any(timed) {
        return None;
    }
    let sharded = runs.iter().any(|run| !run.steps.ranks.shard_waiting.is_empty());
    let bars = |run: &Record, rank: usize| {
        let ranks = &run.steps.ranks;
        let share = |sums: &[f64]| sums.get(rank).map(|sum| 100.0 * sum / ranks.seconds);
        if !timed(run) {
            return None;
        }
        let (busy, waiting) = (share(&ranks.busy)?, share(&ranks.waiting)?);
        let for_shards = share(&ranks.shard_waiting).unwrap_or(0.0);
        let rest = (100.0 - busy - waiting).max(0.0);
        let bars = [(0, busy), (1, (waiting - for_shards).max(0.0)), (2, rest), (3, for_shards)];
        Some(bars.into_iter().filter(|(part, _)| *part < 3 || sharded).collect())
    };
    let mut parts = vec![("at work", 0), ("waiting", 1), ("sums over replicas, and other", 4)];
    if sharded {
        parts.push(("waiting for shards", 5));
    }
    let bars = Bars {
        title: "Time by rank".to_owned(),
        value: format!("share of the steps (%){}", since(runs)),
        parts: parts.into_iter().map(|(name, colour)| Segment { name: name.to_owned(), colour }).collect(),
        rows: rows(runs, |run, rank| bars(run, rank).into_iter().collect()),
        most: Some(100.0),
    };
    Some(bars.part(WIDTH))
}

/// The memory that each rank held for backward, beside what was planned.
pub(super) fn memory(runs: &[Record]) -> Option<String> {
    let peaks = runs.iter().flat_map(|run| &run.steps.ranks.peak_bytes);
    let most = peaks.copied().max()? as f64;
    let planned = runs.iter().flat_map(|run| &run.about.memory).map(|rank| rank.activations);
    let (unit, bytes) = byte_unit(planned.clone().fold(most, f64::max));
    let bars = |run: &Record, rank: usize| -> Vec<Vec<(usize, f64)>> {
        let held = run.steps.ranks.peak_bytes.get(rank).map(|held| *held as f64);
        let planned = planned_of(run, rank);
        let bars = [(0, held), (1, planned)].into_iter();
        bars.filter_map(|(part, value)| value.map(|value| vec![(part, value / bytes)])).collect()
    };
    let mut parts = vec![Segment { name: "most held".to_owned(), colour: 0 }];
    if planned.count() > 0 {
        parts.push(Segment { name: "planned".to_owned(), colour: 4 });
    }
    let bars = Bars {
        title: "Memory by rank".to_owned(),
        value: format!("kept for backward ({unit}){}", since(runs)),
        parts,
        rows: rows(runs, bars),
        most: None,
    };
    Some(bars.part(WIDTH))
}

/// The planned activations of a rank. All replicas and shards have the same plan.
fn planned_of(run: &Record, rank: usize) -> Option<f64> {
    let name = run.about.ranks.get(rank)?;
    Some(run.about.memory.get(name.rank.index())?.activations)
}

/// The name of a rank.
fn name(run: &Record, rank: usize) -> String {
    run.about.ranks.get(rank).map_or_else(|| format!("rank {rank}"), ToString::to_string)
}

/// A row for each rank of each run, the same ranks of two runs together.
fn rows(runs: &[Record], bars: impl Fn(&Record, usize) -> Vec<Vec<(usize, f64)>>) -> Vec<Row> {
    let count = |run: &Record| run.steps.ranks.peak_bytes.len();
    let most = runs.iter().map(count).max().unwrap_or(0);
    let all = (0..most).flat_map(|rank| runs.iter().map(move |run| (run, rank)));
    all.filter(|(run, rank)| *rank < count(run))
        .map(|(run, rank)| Row {
            name: match runs.len() {
                1 => name(run, rank),
                _ => format!("{}, {}", name(run, rank), run.name),
            },
            bars: bars(run, rank),
        })
        .collect()
}

/// From which step on ranks are counted, if their number or their names have changed.
fn since(runs: &[Record]) -> String {
    match runs {
        [run] if run.steps.ranks.since > 0 => format!(" since step {}", run.steps.ranks.since),
        _ => String::new(),
    }
}
