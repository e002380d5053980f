//! A stage that does not return is reported, and the caller stops waiting.

#[path = "common/passing.rs"]
mod passing;
#[path = "common/worlds.rs"]
mod worlds;

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use passing::{Ones, PassOn};
use pipewright::error::{CallError, EndsNow};
use pipewright::id::WorldRank;
use pipewright::run::Interrupt;
use pipewright::schedule::Schedule;
use pipewright::stages::loss::MeanSquaredError;
use pipewright::stages::{ForwardContext, Mode};
use pipewright::{Error, Pipeline, PipelineBuilder};
use worlds::in_processes;

/// Much longer than these stages need, even on a busy machine.
const LIMIT: Duration = Duration::from_millis(500);

/// The rank that blocks.
const BLOCKED: u32 = 1;

/// A pipeline of so many ranks, one of which blocks from step 1 on, and what opens its gate.
fn gated(ranks: u32) -> (PipelineBuilder<PassOn>, Sender<()>) {
    let (open, gate) = channel();
    let gate = Arc::new(Mutex::new(gate));
    let stage = |index| {
        let gate = (index == BLOCKED).then(|| Arc::clone(&gate));
        PassOn::calling(move |ctx: ForwardContext| {
            if let Some(gate) = &gate
                && ctx.mode == Mode::Train
                && ctx.step > 0
            {
                // The test never sends: it drops the sender when it is done.
                let _ = gate.lock().expect("one stage has it").recv();
            }
        })
    };
    let builder = Pipeline::builder()
        .schedule(Schedule::gpipe(ranks, 2).expect("sizes"))
        .stages((0..ranks).map(stage).collect())
        .loss(MeanSquaredError::default())
        .data(Arc::new(Ones))
        .stall_limit(Some(LIMIT))
        .pin(false);
    (builder, open)
}

#[test]
fn a_stage_that_does_not_return_is_told_with_who_waits_for_whom() {
    let (builder, open) = gated(3);
    let mut pipeline = builder.launch().expect("it starts");
    pipeline.step().expect("the gate is open");
    let error = pipeline.step().expect_err("the gate is shut");
    let Error::Call(call) = &error else {
        panic!("another error: {error}");
    };
    let CallError::Stalled {
        rank,
        action,
        limit,
        others,
        ..
    } = call.as_ref()
    else {
        panic!("another error: {error}");
    };
    assert_eq!(
        (*rank, action.as_str(), *limit),
        (WorldRank(BLOCKED), "1F0", LIMIT)
    );
    let others: Vec<String> = others.iter().map(ToString::to_string).collect();
    assert_eq!(
        others,
        ["rank 0 (0B0) waits for rank 1", "rank 2 (2F0) waits for rank 1"]
    );
    for way in ["`pipeline.stall_limit`", "`PipelineBuilder::stall_limit`"] {
        assert!(error.to_string().contains(way), "{error}");
    }
    let after = pipeline.step().expect_err("it has stopped").to_string();
    assert_eq!(
        after,
        format!("the pipeline has stopped after a failure: {error}")
    );
    // Dropping it does not wait for the rank that is still blocked.
    drop(pipeline);
    drop(open);
}

#[test]
fn the_other_processes_are_told() {
    let said = in_processes(2, |world| {
        let (builder, _open) = gated(2);
        let mut pipeline = builder.world(world).launch().expect("it starts");
        pipeline.step().expect("the gate is open");
        pipeline.step().expect_err("the gate is shut").to_string()
    });
    assert!(
        said[1].starts_with("rank 1 has not finished action ") && said[1].contains("(1F0) after 0.5 s"),
        "{}",
        said[1]
    );
    assert_eq!(said[0], format!("process 1: {}", said[1]));
}

#[test]
fn somebody_who_asks_for_an_end_at_once_does_not_wait_for_a_stage_that_does_not_return() {
    let (builder, open) = gated(3);
    let mut pipeline = builder.stall_limit(None).launch().expect("it starts");
    let interrupt = Interrupt::new();
    pipeline.heed(interrupt.clone());
    pipeline.step().expect("the gate is open");
    // An end after the step changes nothing in the step.
    interrupt.request();
    std::thread::scope(|scope| {
        let step = scope.spawn(|| pipeline.step().expect_err("the gate is shut"));
        interrupt.request_now();
        let error = step.join().expect("no panic");
        let Error::Call(call) = &error else {
            panic!("{error}")
        };
        let CallError::Interrupted { why, .. } = call.as_ref() else {
            panic!("another error: {error}");
        };
        assert_eq!(*why, EndsNow::Asked);
        assert!(
            error.to_string().starts_with("interrupted a second time"),
            "{error}"
        );
    });
    // Dropping it does not wait for the rank that is still blocked.
    drop(pipeline);
    drop(open);
}
