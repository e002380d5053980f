//! The trace of a step: every pass and transfer in a possible order, with the memory held; and the costs that
//! follow from it.

use pipewright::draw::{Panel, Picture, Units, trace_events};
use pipewright::schedule::{Action, Flow, Timed, Timeline};

use super::*;

/// The pass that sends (or receives) this flow from (or to) this cell.
fn pass_of(timeline: &Timeline, flow: Flow, cell: Cell) -> Timed {
    let is = |pass: &&Timed| pass.pass.output() == Some(flow) && pass.cell == cell;
    *timeline.ranks.iter().flatten().find(is).expect("there is one")
}

#[test]
fn a_traced_step_has_every_pass_and_transfer_in_an_order_that_can_be() {
    for name in Schedule::names() {
        let Ok(schedule) = Schedule::named(name, 2, 4) else {
            continue;
        };
        let mut pipeline = recipe(6, false, 4).launch(schedule).expect("it starts");
        let schedule = pipeline.schedule().clone();
        let (report, timeline) = pipeline.step_traced().expect("the step succeeds");
        for (rank, row) in (0..).map(Rank).zip(&timeline.ranks) {
            let done: Vec<_> = row.iter().map(|timed| (timed.pass, timed.cell)).collect();
            let called: Vec<_> =
                schedule.actions(rank).iter().filter_map(|action| action.compute()).collect();
            assert_eq!(done, called, "{name}, rank {rank}");
            assert!(row.windows(2).all(|pair| pair[0].end <= pair[1].start), "{name}: one after the other");
            assert!(row[0].start >= 0.0 && row.iter().all(|pass| pass.start <= pass.end));
            assert!(row[row.len() - 1].end <= report.seconds);
            let peak = row.iter().map(|pass| pass.most).fold(0.0, f64::max);
            assert_eq!(peak, report.ranks[rank.index()].peak_bytes as f64, "{name}, rank {rank}");
            assert_eq!(row[row.len() - 1].held, 0.0, "{name}, rank {rank}: nothing is left");
        }
        let sends =
            |rank| schedule.actions(rank).iter().filter(|action| matches!(action, Action::Send(..))).count();
        assert_eq!(timeline.transfers.len(), sends(Rank(0)) + sends(Rank(1)), "{name}");
        for transfer in &timeline.transfers {
            let receiver = transfer.receiver().expect("a transfer has a receiver");
            let made = pass_of(&timeline, transfer.flow, transfer.cell);
            let takes = pass_of(&timeline, transfer.flow, receiver);
            assert!(made.end <= transfer.start && transfer.end <= takes.start, "{name}: {transfer:?}");
            assert!(transfer.start <= transfer.end && transfer.from != transfer.to, "{name}: {transfer:?}");
        }
    }
}

#[test]
fn tracing_changes_no_weight_and_ends_with_its_step() {
    let hash = |traced: bool| {
        let mut pipeline = recipe(4, true, 3).pipeline(2, "1f1b");
        for step in 0..3 {
            if traced && step > 0 {
                pipeline.step_traced().expect("the step succeeds");
            } else {
                pipeline.step().expect("the step succeeds");
            }
        }
        pipeline.weights_hash().expect("it runs")
    };
    assert_eq!(hash(true), hash(false));
}

#[test]
fn costs_measured_in_a_planned_step_are_those_it_was_planned_with() {
    for name in Schedule::names() {
        let whole = name != "zb-h1";
        let stages = 4;
        let each = |stage: usize| StageCost {
            forward: 1.0 + stage as f64 / 8.0,
            backward_input: 2.0,
            backward_weight: if whole { 2.0 } else { 1.5 },
            saved: 3.0,
            pending: if whole { 0.0 } else { 1.0 },
            restored: stage as f64,
            ..StageCost::NOTHING
        };
        let Ok(schedule) = Schedule::named(name, 4, 8) else {
            continue;
        };
        if schedule.stages() != stages {
            continue;
        }
        let costs = Costs::each((0..stages as usize).map(each).collect(), 0.25).unwrap();
        let timeline = schedule.timeline(&costs, LinkKind::Buffered).unwrap();
        let measured = Costs::measured(&[timeline]).unwrap();
        assert_eq!(measured, costs, "{name}");
    }
}

#[test]
fn activations_that_are_away_meanwhile_change_no_measured_cost() {
    for (name, pending) in [("gpipe", 0.0), ("1f1b", 0.0), ("zb-2p", 0.5)] {
        let cost = StageCost {
            forward: 1.0,
            backward_input: 2.0,
            backward_weight: 2.0,
            saved: 3.0,
            pending,
            restored: 0.25,
            ..StageCost::NOTHING
        };
        let copied = StageCost { copy: 1.5, ..cost };
        let schedule = named(name, 6, 12);
        let schedule = schedule.offloading(&[1.0; 6], f64::INFINITY);
        assert!(schedule.offloads());
        let timeline = schedule.timeline(&Costs::each(vec![copied; 6], 0.25).unwrap(), LinkKind::Buffered);
        let measured = Costs::measured(&[timeline.unwrap()]).unwrap();
        assert_eq!(measured, Costs::each(vec![cost; 6], 0.25).unwrap(), "{name}");
    }
}

#[test]
fn the_median_counts_and_what_is_missing_is_named() {
    let pass = |pass, micro_batch, start, end, [before, held]: [f64; 2]| Timed {
        pass,
        cell: Cell::new(0, micro_batch),
        start,
        end,
        before,
        held,
        most: before.max(held),
    };
    let row = vec![
        pass(Pass::Forward, 0, 0.0, 1.0, [0.0, 8.0]),
        pass(Pass::Forward, 1, 1.0, 11.0, [8.0, 16.0]),
        pass(Pass::Forward, 2, 11.0, 13.0, [16.0, 24.0]),
        pass(Pass::Backward, 0, 13.0, 17.0, [24.0, 16.0]),
        pass(Pass::Backward, 1, 17.0, 21.0, [16.0, 8.0]),
        pass(Pass::Backward, 2, 21.0, 22.0, [8.0, 0.0]),
    ];
    let timeline = |row: &[Timed]| Timeline { ranks: vec![row.to_vec()], ..Timeline::default() };
    let cost = StageCost {
        forward: 2.0,
        backward_input: 2.0,
        backward_weight: 2.0,
        saved: 8.0,
        ..StageCost::NOTHING
    };
    assert_eq!(Costs::measured(&[timeline(&row)]).unwrap(), Costs::each(vec![cost], 0.0).unwrap());
    let error = Costs::measured(&[timeline(&row[..3])]).unwrap_err().to_string();
    assert_eq!(error, "stage 0 has no backward in the timeline to take its cost from");
}

/// A step of 2 replicas of 2 stages with 2 shards each.
fn of_shards() -> (pipewright::StepReport, Timeline) {
    let recipe = Recipe { replicas: 2, shards: 2, shard_groups: 2, ..recipe(4, false, 4) };
    recipe.pipeline(2, "1f1b").step_traced().expect("the step succeeds")
}

#[test]
fn each_shard_has_a_row_and_its_transfers_stay_with_it() {
    let (_, timeline) = of_shards();
    assert_eq!(timeline.ranks.len(), 2 * 2 * 2);
    let one = recipe(4, false, 4).pipeline(2, "1f1b").step_traced().expect("the step succeeds").1;
    assert_eq!(timeline.transfers.len(), 2 * one.transfers.len(), "as many for each shard");
    let pass = |rank: Rank, flow: Flow, cell: Cell| {
        let row = timeline.ranks[rank.index()].iter();
        let is = |pass: &&Timed| pass.pass.output() == Some(flow) && pass.cell == cell;
        *row.clone().find(is).expect("the pass is in the row")
    };
    for transfer in &timeline.transfers {
        let (from, to) = (transfer.from, transfer.to);
        assert_eq!((from.0 % 2, from.0 / 4), (to.0 % 2, to.0 / 4), "shard and replica: {transfer:?}");
        let made = pass(from, transfer.flow, transfer.cell);
        let takes = pass(to, transfer.flow, transfer.receiver().expect("it has a receiver"));
        assert!(made.end <= transfer.start && transfer.end <= takes.start, "{transfer:?}");
    }
    let costs = Costs::measured(&[timeline]).expect("every stage has its passes");
    assert!(costs.comm() >= 0.0);
}

#[test]
fn waits_for_shards_are_inside_of_passes_and_are_no_work() {
    let (report, timeline) = of_shards();
    for (rank, row) in (0..).map(Rank).zip(&timeline.ranks) {
        let waits: Vec<_> = timeline.shard_waits.iter().filter(|wait| wait.rank == rank).collect();
        assert!(!waits.is_empty(), "rank {rank}");
        for wait in &waits {
            assert_eq!(wait.shard, 1 - rank.0 % 2, "the other one");
            let inside = |pass: &Timed| pass.start <= wait.start && wait.end <= pass.end;
            assert!(row.iter().any(inside), "rank {rank}: {wait:?}");
        }
        assert!(waits.windows(2).all(|pair| pair[0].end <= pair[1].start), "one after the other");
        let seconds: f64 = waits.iter().map(|wait| wait.end - wait.start).sum();
        let measured = report.ranks[rank.index()];
        assert!((measured.shard_waiting - seconds).abs() < 1e-6, "{} and {seconds}", measured.shard_waiting);
        assert!(measured.shard_waiting <= measured.waiting && measured.busy > 0.0);
    }
    let most = report.ranks.iter().map(|rank| rank.shard_waiting).fold(0.0, f64::max);
    assert_eq!(report.shard_waiting(), most / report.seconds);
}

#[test]
fn pictures_and_events_name_shards_and_mark_their_waits() {
    let (_, timeline) = of_shards();
    let panel = Panel { title: "a step".to_owned(), timeline: &timeline, replicas: 2, shards: 2 };
    let events: serde_json::Value = serde_json::from_str(&trace_events(&panel)).expect("it is JSON");
    let events = events["traceEvents"].as_array().expect("a list");
    let names = events.iter().filter(|event| event["name"] == "thread_name");
    let names: Vec<_> = names.map(|event| event["args"]["name"].as_str().unwrap()).collect();
    assert_eq!(
        names[..3],
        ["replica 0, rank 0, shard 0", "replica 0, rank 0, shard 1", "replica 0, rank 1, shard 0"]
    );
    assert_eq!(names[7], "replica 1, rank 1, shard 1");
    let of = |name: &str| events.iter().filter(|event| event["cat"] == name).count();
    assert_eq!(of("shard"), timeline.shard_waits.len());
    assert_eq!(of("transfer"), 2 * timeline.transfers.len(), "each begins and ends");
    let picture = Picture { panels: vec![panel], units: Units::SecondsAndBytes, transfers: true };
    let svg = picture.svg().expect("it is drawn");
    for text in [
        ">replica 1, rank 1, shard 1<",
        ">waits for a shard<",
        " %, waits for shards ",
        ">replica.rank.shard<",
        ">1.1.1<",
    ] {
        assert!(svg.contains(text), "{text} in {svg}");
    }
}
