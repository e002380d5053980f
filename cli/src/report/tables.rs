//! The tables of a page: what a run came to, what it ran on, its settings and its history.

use std::collections::{BTreeMap, BTreeSet};

use maud::{Markup, html};

use super::numbers::{bytes, duration, percent, rounded, whole};
use super::record::Record;
use pipewright::plan::RankMemory;
use pipewright::run::{HistoryEntry, NOT_CHANGED};

/// The most lines of the history that a page has.
const EVENTS: usize = 50;

/// A figure of a run, if it is known.
type Figure = dyn Fn(&Record) -> Option<String>;
/// A part of a rank's memory.
type Bytes = fn(&RankMemory) -> f64;

/// The figures that a reader looks for first, a column for each run.
pub(super) fn summary(runs: &[Record]) -> Markup {
    let loss = |run: &Record| run.steps.loss.last[0].map(rounded);
    let best = |run: &Record| {
        let (loss, done) = run.steps.best?;
        let steps = if done == 1 { "step" } else { "steps" };
        Some(format!("{} after {} {steps}", rounded(loss), whole(done)))
    };
    let steps = |run: &Record| {
        let of = run.planned_steps.map_or(String::new(), |steps| format!(" of {}", whole(steps)));
        Some(format!("{}{of}", whole(run.steps.done)))
    };
    let rate = |run: &Record| run.steps.mean_rate().map(rounded);
    let predicted = |run: &Record| {
        let step = run.about.predicted?;
        Some(format!("{}, bubble {}", duration(step.seconds), percent(step.bubble)))
    };
    let measured = |run: &Record| {
        let mean = run.steps.seconds / run.steps.count as f64;
        let bubble = percent(run.steps.mean_bubble()?);
        Some(format!("{}, bubble {bubble}", duration(mean)))
    };
    let targets = runs.iter().find_map(|run| run.about.loss.as_ref());
    let targets = targets.map_or("targets".to_owned(), |unit| format!("{}s", unit.target));
    let since = match runs {
        [run] if run.about.since > 0 => format!(" since step {}", run.about.since),
        _ => String::new(),
    };
    let rows: [(String, &Figure); 7] = [
        ("Steps".to_owned(), &steps),
        ("Last training loss".to_owned(), &loss),
        ("Lowest validation loss".to_owned(), &best),
        (format!("Mean {targets} a second"), &rate),
        ("Mean step".to_owned(), &measured),
        (format!("Predicted step{since}"), &predicted),
        ("Time in steps".to_owned(), &|run| Some(duration(run.steps.seconds))),
    ];
    let rows = rows.into_iter().map(|(name, of)| (name, runs.iter().map(of).collect()));
    let mut rows: Vec<_> = rows.collect();
    rows.splice(3..3, metrics(runs));
    rows.extend(sequences(runs));
    table("Summary", runs, rows)
}

/// The last values of the metrics of the loss.
fn metrics(runs: &[Record]) -> Vec<(String, Vec<Option<String>>)> {
    let names: BTreeSet<&String> = runs.iter().flat_map(|run| run.steps.metrics.keys()).collect();
    let kinds = ["Last training", "Last validation"].into_iter().enumerate();
    let rows = names.into_iter().flat_map(|name| {
        kinds.clone().map(move |(kind, words)| {
            let last = |run: &Record| run.steps.metrics.get(name)?.last[kind].map(rounded);
            let words = format!("{words} {}", name.replace('_', " "));
            (words, runs.iter().map(last).collect())
        })
    });
    rows.collect()
}

/// How much was taken from each source of data, where there are several.
fn sequences(runs: &[Record]) -> Vec<(String, Vec<Option<String>>)> {
    let names: BTreeSet<&String> = runs.iter().flat_map(|run| run.steps.sequences.keys()).collect();
    let rows = names.into_iter().map(|name| {
        let taken = |run: &Record| {
            let (own, all) = (*run.steps.sequences.get(name)?, run.steps.all_sequences.max(1));
            Some(format!("{}, {}", whole(own), percent(own as f64 / all as f64)))
        };
        (format!("Sequences from {name}"), runs.iter().map(taken).collect())
    });
    rows.collect()
}

/// What the runs trained on.
pub(super) fn machine(runs: &[Record]) -> Option<Markup> {
    let columns: Vec<_> = runs.iter().map(|run| run.about.machine.as_slice()).collect();
    columns.iter().any(|column| !column.is_empty()).then(|| table("Machine", runs, merged(&columns)))
}

/// All settings. Those that differ between runs come first.
pub(super) fn settings(runs: &[Record]) -> Option<Markup> {
    let columns: Vec<_> = runs.iter().map(|run| run.settings.as_slice()).collect();
    if columns.iter().all(|column| column.is_empty()) {
        return None;
    }
    let differs =
        |(_, values): &(String, Vec<Option<String>>)| values.windows(2).any(|pair| pair[0] != pair[1]);
    let (different, equal): (Vec<_>, Vec<_>) = merged(&columns).into_iter().partition(differs);
    Some(html! {
        @if runs.len() > 1 {
            @if different.is_empty() { p { "All settings are equal." } }
            @else { (table("Settings that differ", runs, different)) }
        }
        details { summary { @if runs.len() > 1 { "Settings that are equal" } @else { "Settings" } }
            (table("Settings", &runs[..1], equal.into_iter().map(|(key, mut values)| {
                values.truncate(1);
                (key, values)
            }).collect()))
        }
    })
}

/// The memory that each rank was estimated to need.
pub(super) fn planned_memory(run: &Record) -> Option<Markup> {
    let ranks = &run.about.memory;
    let parts: [(&str, Bytes); 8] = [
        ("weights", |rank| rank.weights),
        ("gradients", |rank| rank.gradients),
        ("optimizer", |rank| rank.optimizer),
        ("copies", |rank| rank.copies),
        ("activations", |rank| rank.activations),
        ("buffers", |rank| rank.buffers),
        ("all", RankMemory::total),
        ("on the host", RankMemory::on_host),
    ];
    // Only where ranks on GPUs have something on the host there is a last column.
    let some = ranks.iter().any(|rank| rank.on_host() > 0.0);
    let parts = &parts[..parts.len() - usize::from(!some)];
    let since = match run.about.since {
        0 => String::new(),
        since => format!(", since step {since}"),
    };
    (!ranks.is_empty()).then(|| {
        html! {
            details { summary { "Planned memory of " (run.name) (since) }
                div.wide tabindex="0" role="region" aria-label="Planned memory" { table.figures {
                    thead { tr { th { "rank" } @for (name, _) in parts { th { (name) } } } }
                    tbody { @for (rank, held) in ranks.iter().enumerate() {
                        tr { th { (rank) } @for (_, of) in parts { td { (bytes(of(held))) } } }
                    } }
                } }
            }
        }
    })
}

/// When and why the model was cut elsewhere, and what that brought.
pub(super) fn cuts(run: &Record) -> Option<Markup> {
    let has_changed = |entry: &&HistoryEntry| entry.of_cut && !entry.event.starts_with(NOT_CHANGED);
    let cuts: Vec<_> = run.history.iter().filter(has_changed).collect();
    (!cuts.is_empty()).then(|| events("Cuts", cuts))
}

/// What happened to a run, the newest event first.
pub(super) fn history(run: &Record) -> Option<Markup> {
    (!run.history.is_empty()).then(|| {
        let newest = run.history.iter().rev().take(EVENTS).collect();
        html! { details { summary { "History of " (run.name) } (events("History", newest)) } }
    })
}

fn events(name: &str, entries: Vec<&HistoryEntry>) -> Markup {
    html! {
        div.wide tabindex="0" role="region" aria-label=(name) { table {
            thead { tr { th { "time (UTC)" } th { "after step" } th { "event" } } }
            tbody { @for entry in entries {
                tr {
                    td { (entry.time.replace('T', " ").replace('Z', "")) }
                    td { (whole(entry.step)) }
                    td { (entry.event) }
                }
            } }
        } }
    }
}

/// The rows of several columns of names and values, in the order of the first.
fn merged(columns: &[&[(String, String)]]) -> Vec<(String, Vec<Option<String>>)> {
    let values: Vec<BTreeMap<&str, &str>> = columns
        .iter()
        .map(|column| column.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect())
        .collect();
    let mut keys: Vec<&str> = Vec::new();
    for (key, _) in columns.iter().flat_map(|column| column.iter()) {
        if !keys.contains(&key.as_str()) {
            keys.push(key);
        }
    }
    let row = |key: &str| values.iter().map(|of| of.get(key).map(|value| (*value).to_owned())).collect();
    keys.into_iter().map(|key| (key.to_owned(), row(key))).collect()
}

/// A table with a column for each run. Rows without any value are left out.
fn table(title: &str, runs: &[Record], rows: Vec<(String, Vec<Option<String>>)>) -> Markup {
    let known = |values: &[Option<String>]| values.iter().any(Option::is_some);
    html! {
        div.wide tabindex="0" role="region" aria-label=(title) { table {
            @if runs.len() > 1 {
                thead { tr { th {} @for run in runs { th { (run.name) } } } }
            }
            tbody { @for (name, values) in rows.iter().filter(|(_, values)| known(values)) {
                tr { th { (name) } @for value in values { td { (value.as_deref().unwrap_or("–")) } } }
            } }
        } }
    }
}
