//! A timeline as events in Chrome's trace format, for Perfetto and `chrome://tracing`.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::figures::heights;
use super::picture::Panel;
use crate::schedule::{Action, Cell, Flow, Timed, TimedReduction, TimedShardWait, Timeline};

/// The one process of a trace.
const PROCESS: u32 = 0;
/// How many microseconds before the end of its pass a flow begins. Viewers then tie it to that pass.
const INSIDE: f64 = 0.001;

/// A measured timeline (seconds, bytes) as JSON in Chrome's trace format. Each row is a thread, with the name
/// of its rank. Each pass is a complete event, and in it each wait for another shard. Each transfer is a flow
/// from pass to pass. Each reduction is an asynchronous event. The memory that a rank holds is a counter.
pub fn trace_events(panel: &Panel<'_>) -> String {
    let timeline = panel.timeline;
    let mut events = vec![metadata("process_name", 0, json!({ "name": panel.title }))];
    for (rank, row) in timeline.ranks.iter().enumerate() {
        let name = panel.row_name(rank).to_string();
        events.push(metadata("thread_name", rank, json!({ "name": name })));
        events.push(metadata("thread_sort_index", rank, json!({ "sort_index": rank })));
        events.extend(row.iter().map(|timed| pass(rank, timed)));
        events.extend(heights(row).map(|height| held(rank, &name, height)));
    }
    events.extend(flows(timeline));
    events.extend(timeline.shard_waits.iter().map(shard_wait));
    events.extend(timeline.reductions.iter().flat_map(reduction));
    json!({ "displayTimeUnit": "ms", "traceEvents": events }).to_string()
}

fn metadata(name: &str, thread: usize, args: Value) -> Value {
    json!({ "ph": "M", "name": name, "pid": PROCESS, "tid": thread, "args": args })
}

fn pass(rank: usize, timed: &Timed) -> Value {
    let Cell { stage, micro_batch } = timed.cell;
    json!({
        "ph": "X",
        "name": format!("{stage}{}{micro_batch}", timed.pass.letter()),
        "cat": timed.pass.name(),
        "pid": PROCESS,
        "tid": rank,
        "ts": micros(timed.start),
        "dur": (nanos(timed.end) - nanos(timed.start)) / 1e3,
        "args": { "stage": stage.0, "micro_batch": micro_batch.0 },
    })
}

fn shard_wait(wait: &TimedShardWait) -> Value {
    json!({
        "ph": "X",
        "name": format!("waits for shard {}", wait.shard),
        "cat": "shard",
        "pid": PROCESS,
        "tid": wait.rank.0,
        "ts": micros(wait.start),
        "dur": (nanos(wait.end) - nanos(wait.start)) / 1e3,
        "args": { "shard": wait.shard },
    })
}

/// The begin and the end event of a reduction. It cannot be a complete event: complete events of one thread
/// may not overlap.
fn reduction(reduction: &TimedReduction) -> [Value; 2] {
    let TimedReduction { stage, rank, start, end } = *reduction;
    [("b", start), ("e", end)].map(|(phase, time)| {
        json!({
            "ph": phase,
            "id": format!("{}.{}", rank.0, stage.0),
            "name": Action::Reduce(stage).to_string(),
            "cat": "reduction",
            "pid": PROCESS,
            "tid": rank.0,
            "ts": micros(time),
            "args": { "stage": stage.0, "rank": rank.0 },
        })
    })
}

fn held(rank: usize, whose: &str, (time, bytes): (f64, f64)) -> Value {
    json!({
        "ph": "C",
        "name": format!("memory held, {whose}"),
        "pid": PROCESS,
        "tid": rank,
        "ts": micros(time),
        "args": { "bytes": bytes },
    })
}

/// The begin and the end event of each transfer's flow: in the pass that made the data, and in the pass that
/// takes it.
fn flows(timeline: &Timeline) -> Vec<Value> {
    let mut passes: HashMap<(usize, Flow, Cell), &Timed> = HashMap::new();
    for (rank, row) in timeline.ranks.iter().enumerate() {
        for timed in row {
            let made = timed.pass.output().map(|flow| (rank, flow, timed.cell));
            passes.extend(made.map(|made| (made, timed)));
        }
    }
    let mut events = Vec::new();
    for (id, transfer) in timeline.transfers.iter().enumerate() {
        let (from, to) = (transfer.from.index(), transfer.to.index());
        let pass = |rank, cell| passes.get(&(rank, transfer.flow, cell));
        let receiver = transfer.receiver().and_then(|cell| pass(to, cell));
        let (Some(made), Some(takes)) = (pass(from, transfer.cell), receiver) else {
            continue;
        };
        let name = match transfer.flow {
            Flow::Activation => "activation",
            Flow::Gradient => "gradient",
        };
        let flow = |phase: &str, rank: usize, ts: f64| {
            json!({
                "ph": phase, "id": id, "name": name, "cat": "transfer",
                "pid": PROCESS, "tid": rank, "ts": ts, "bp": "e",
            })
        };
        let last = (micros(made.end) - INSIDE).max(micros(made.start));
        events.push(flow("s", from, last));
        events.push(flow("f", to, micros(takes.start)));
    }
    events
}

/// A time in microseconds, exact to the nanosecond.
fn micros(seconds: f64) -> f64 {
    nanos(seconds) / 1e3
}

fn nanos(seconds: f64) -> f64 {
    (seconds * 1e9).round()
}
