//! A run that hangs says who waits for whom, once, and the caller stops waiting.

#[path = "../common/gates.rs"]
mod gates;
#[path = "../common/has.rs"]
mod has;
#[path = "../common/passing.rs"]
#[allow(dead_code, reason = "only its data is used")]
mod passing;
#[path = "../common/worlds.rs"]
mod worlds;

mod several;
mod sources;
mod words;

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use std::{fs, thread};

use gates::{Asked, gate, gated, heard, next, wait_at};
use has::has;
use passing::Ones;
use pipewright::data::DataSource;
use pipewright::error::{CallError, EndsNow};
use pipewright::id::{MicroBatch, WorldRank};
use pipewright::run::{Event, Interrupt, Run};
use pipewright::schedule::Schedule;
use pipewright::situation::{Root, Situation, Stall};
use pipewright::stages::loss::MeanSquaredError;
use pipewright::stages::{Sequential, Shape, StageBuilder, Tensor};
use pipewright::{Error, Pipeline, PipelineBuilder, StallWarning};
use worlds::in_processes;

/// Much longer than these stages need, even on a busy machine.
const SOON: Duration = Duration::from_millis(500);

/// A pipeline of these stages, with a rank each and two micro-batches.
fn pipeline(stages: Vec<StageBuilder<Sequential>>) -> PipelineBuilder<Sequential> {
    Pipeline::builder()
        .schedule(Schedule::gpipe(stages.len() as u32, 2).expect("sizes"))
        .stages(stages)
        .loss(MeanSquaredError::default())
        .data(Arc::new(Ones))
        .stall_warning(StallWarning::After(SOON))
        .stall_limit(None)
        .pin(false)
}

/// A pipeline of `ranks` ranks, and what opens the gate at which one waits from step 1 on: in the forward
/// pass, or in the backward pass, of micro-batch 0.
fn held(ranks: u32, at: u32, forward: bool) -> (PipelineBuilder<Sequential>, impl Sized + Send) {
    let (open, gate) = gate();
    let stages = gated(ranks, move |stage, asked| {
        let (ctx, is_forward) = match asked {
            Asked::Forward(ctx) => (ctx, true),
            Asked::Backward(ctx) => (ctx, false),
            Asked::Parameters => return,
        };
        if (stage, is_forward, ctx.micro_batch) == (at, forward, 0) && ctx.step > 0 {
            wait_at(&gate);
        }
    });
    (pipeline(stages), open)
}

/// What is told of a stall's beginning.
#[track_caller]
fn began(stall: Stall) -> (Vec<Root>, Situation) {
    match stall {
        Stall::Began { roots, situation } => (roots, situation),
        other => panic!("not a beginning: {other}"),
    }
}

/// A text without its times: each number before ` s` is gone.
fn timeless(text: &str) -> String {
    let mut words: Vec<&str> = text.split(' ').collect();
    let is_unit = |word: &str| matches!(word.trim_end_matches([';', ',', ':', '.']), "s");
    for index in 1..words.len() {
        if is_unit(words[index]) {
            words[index - 1] = "N";
        }
    }
    let text = words.join(" ");
    // How long everything has been still depends on when it was looked at.
    text.strip_prefix("nothing has moved for N s: ").unwrap_or(&text).to_owned()
}

#[test]
fn a_stage_that_does_not_return_is_told_once_with_its_layer_and_who_waits_for_whom() {
    let (builder, open) = held(3, 1, true);
    let (builder, stalls) = heard(builder);
    let mut pipeline = builder.launch().expect("it starts");
    pipeline.step().expect("the gate is open");
    let step = thread::spawn(move || (pipeline.step().is_ok(), pipeline));
    let stall = next(&stalls);
    assert_eq!(
        timeless(&stall.to_string()),
        "rank 1 has been in 1F0 (stage 1, layer h.1) for N s; rank 0 has waited for rank 1's gradient of \
         micro-batch 0 for N s, in 0B0 (stage 0, layer h.0); rank 2 has waited for rank 1's activation of \
         micro-batch 0 for N s, in 2F0 (stage 2, layer h.2)"
    );
    assert_eq!(began(stall).0, [Root::Rank(WorldRank(1))]);
    drop(open);
    assert!(matches!(next(&stalls), Stall::Over { .. }));
    let (done, pipeline) = step.join().expect("no panic");
    assert!(done, "the step goes on");
    drop(pipeline);
    assert!(stalls.recv().is_err(), "it was told once");
}

#[test]
fn ranks_that_wait_in_the_agreement_say_so() {
    let (builder, open) = held(3, 0, false);
    let (builder, stalls) = heard(builder);
    let mut pipeline = builder.launch().expect("it starts");
    pipeline.step().expect("the gate is open");
    let step = thread::spawn(move || pipeline.step().is_ok());
    assert_eq!(
        timeless(&next(&stalls).to_string()),
        "rank 0 has been in 0B0 (stage 0, layer h.0) for N s; rank 1 has waited for all other ranks for N s, \
         in 1STEP (stage 1, layer h.1); rank 2 has waited for all other ranks for N s, in \
         2STEP (stage 2, layer h.2)"
    );
    drop(open);
    assert!(step.join().expect("no panic"));
}

#[test]
fn after_the_limit_the_call_ends_with_the_same_words() {
    let (builder, open) = held(3, 1, true);
    let mut pipeline = builder.stall_limit(Some(SOON)).launch().expect("it starts");
    pipeline.step().expect("the gate is open");
    let error = pipeline.step().expect_err("the gate is shut");
    let Error::Call(call) = &error else {
        panic!("another error: {error}");
    };
    let CallError::Stalled { limit, roots, .. } = call.as_ref() else {
        panic!("another error: {error}");
    };
    assert_eq!((*limit, &roots[..]), (SOON, &[Root::Rank(WorldRank(1))][..]));
    let text = error.to_string();
    let start = "a stall of 0.5 s: rank 1 has been in 1F0 (stage 1, layer h.1) for ";
    assert!(text.starts_with(start), "{text}");
    for words in [
        "rank 0 has waited for rank 1's gradient of micro-batch 0",
        "`pipeline.stall_limit`",
        "`PipelineBuilder::stall_limit`",
    ] {
        has(&text, &[words]);
    }
    let after = pipeline.step().expect_err("it has stopped").to_string();
    assert_eq!(after, format!("the pipeline has stopped after a failure: {error}"));
    // Dropping it does not wait for the rank that is still blocked.
    drop(pipeline);
    drop(open);
}

#[test]
fn a_rank_that_hangs_while_a_checkpoint_is_written_says_what_it_is_at() {
    let (open, gate) = gate();
    let shut = Arc::new(AtomicBool::new(false));
    let is_shut = Arc::clone(&shut);
    let stages = gated(2, move |stage, asked| {
        if asked == Asked::Parameters && stage == 1 && is_shut.load(Ordering::SeqCst) {
            wait_at(&gate);
        }
    });
    let folder = tempfile::tempdir().expect("a folder");
    let mut pipeline = pipeline(stages).stall_limit(Some(SOON)).launch().expect("it starts");
    pipeline.step().expect("it trains");
    shut.store(true, Ordering::SeqCst);
    let error = pipeline.save(folder.path().join("saved")).expect_err("it hangs");
    assert_eq!(
        timeless(&error.to_string()).split(". If").next(),
        Some("a stall of N s: rank 1 has been at `writing a checkpoint` for N s"),
    );
    drop(pipeline);
    drop(open);
}

/// Waits until a run has noted a stall: its own listener comes after the one that was added first.
fn await_warning(history: &Path) {
    while !fs::read_to_string(history).is_ok_and(|noted| noted.contains("warning: ")) {
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_run_notes_a_stall_at_once_and_tells_its_listeners_when_the_step_goes_on() {
    let (builder, open) = held(2, 1, true);
    let (builder, stalls) = heard(builder);
    let mut pipeline = builder.launch().expect("it starts");
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path().join("run");
    let history = dir.join("history.jsonl");
    let train = move || {
        let events = Rc::new(RefCell::new(Vec::new()));
        let seen = Rc::clone(&events);
        let run = Run::new(dir).steps(2).on(move |event| match event {
            Event::Step(report) => seen.borrow_mut().push(format!("step {}", report.step)),
            Event::Stall(stall) => seen.borrow_mut().push(stall.to_string()),
            _ => {}
        });
        run.train(&mut pipeline).expect("it trains");
        events.take()
    };
    thread::scope(|scope| {
        let train = scope.spawn(train);
        let told = next(&stalls).to_string();
        await_warning(&history);
        drop(open);
        let events = train.join().expect("no panic");
        assert_eq!(&events[..2], ["step 0", &told]);
        assert_eq!(events.iter().filter(|event| event.starts_with("step ")).count(), 2);
    });
}

#[test]
fn a_run_tells_its_listeners_of_a_stall_of_its_last_checkpoint_before_the_end() {
    let (open, gate) = gate();
    let saves = Arc::new(AtomicBool::new(false));
    let data = sources::Late::new(Arc::clone(&saves), gate);
    let (builder, stalls) = heard(pipeline(gated(2, |_, _| {})).data(Arc::new(data)));
    let mut pipeline = builder.launch().expect("it starts");
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path().join("run");
    let history = dir.join("history.jsonl");
    let train = move || {
        let events = Rc::new(RefCell::new(Vec::new()));
        let seen = Rc::clone(&events);
        let run = Run::new(dir).steps(1).on(move |event| {
            seen.borrow_mut().push(match event {
                Event::Step(_) => {
                    saves.store(true, Ordering::SeqCst);
                    "step"
                }
                Event::Stall(Stall::Began { .. }) => "stall",
                Event::Checkpoint { .. } => "saved",
                Event::End(_) => "end",
                _ => return,
            });
        });
        run.train(&mut pipeline).expect("it trains");
        events.take()
    };
    thread::scope(|scope| {
        let train = scope.spawn(train);
        has(&next(&stalls), &["has been at `ending a checkpoint`"]);
        await_warning(&history);
        drop(open);
        assert_eq!(train.join().expect("no panic"), ["step", "stall", "saved", "end"]);
    });
}

#[test]
fn somebody_who_asks_for_an_end_at_once_does_not_wait_for_a_stage_that_does_not_return() {
    let (builder, open) = held(3, 1, true);
    let mut pipeline = builder.launch().expect("it starts");
    let interrupt = Interrupt::new();
    pipeline.heed(interrupt.clone());
    pipeline.step().expect("the gate is open");
    // An end after the step changes nothing in the step.
    interrupt.request();
    std::thread::scope(|scope| {
        let step = scope.spawn(|| pipeline.step().expect_err("the gate is shut"));
        interrupt.request_now();
        let error = step.join().expect("no panic");
        let Error::Call(call) = &error else { panic!("{error}") };
        let CallError::Interrupted { why, .. } = call.as_ref() else {
            panic!("another error: {error}");
        };
        assert_eq!(*why, EndsNow::Asked);
        assert!(error.to_string().starts_with("interrupted a second time"), "{error}");
    });
    // Dropping it does not wait for the rank that is still blocked.
    drop(pipeline);
    drop(open);
}
