//! A run whose model is cut elsewhere while it goes on.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

use pipewright::plan::{Costs, LayerCost, LinkCost, ModelCosts, Replicas, Scheduling, StageCost, Watch};
use pipewright::run::{Change, NewCut, Reason, Replan};
use pipewright::stages::layers::Linear;
use pipewright::stages::models::{LayerSpec, Model};
use pipewright::stages::{ForwardContext, Init, Kept, Layer, Result as StageResult};

use super::*;

const LAYERS: usize = 8;

thread_local! {
    /// The rank whose stages this thread builds.
    static RANK: OnceLock<usize> = const { OnceLock::new() };
}

/// Passes on what it gets, after some time: microseconds for each rank.
#[derive(Debug)]
struct Waits(Arc<[AtomicU64; 2]>);

impl Waits {
    fn wait(&self) {
        let rank = RANK.with(|rank| *rank.get().expect("the stages are built on the rank's thread"));
        std::thread::sleep(Duration::from_micros(self.0[rank].load(Ordering::Relaxed)));
    }
}

impl Layer for Waits {
    fn name(&self) -> &str {
        "waits"
    }

    fn output_shape(&self, input: &Shape) -> StageResult<Shape> {
        Ok(*input)
    }

    fn forward(&mut self, ctx: ForwardContext, input: Tensor) -> StageResult<(Tensor, Kept)> {
        self.wait();
        Ok((input, Kept::new(ctx, [])))
    }

    fn backward_input(&mut self, saved: Kept, grad: Tensor) -> StageResult<(Option<Tensor>, Kept)> {
        self.wait();
        Ok((Some(grad), saved))
    }
}

/// Layers that wait. In the first cut, rank 0 has the first four.
fn model(waits: &Arc<[AtomicU64; 2]>) -> Model {
    let unit = |index: usize| {
        let waits = Arc::clone(waits);
        LayerSpec::new(format!("h.{index}"), 1.0, move || {
            RANK.with(|rank| {
                rank.get_or_init(|| index / (LAYERS / 2));
            });
            let linear = Linear::new(&format!("h.{index}.fc"), [1, 1], Init::Normal(1.0), 1);
            Ok(vec![Box::new(Waits(Arc::clone(&waits))), Box::new(linear)])
        })
    };
    Model::new((0..LAYERS).map(unit).collect())
}

fn launch(waits: &Arc<[AtomicU64; 2]>) -> Pipeline<Sequential> {
    launch_by("1f1b", waits)
}

fn launch_by(schedule: &str, waits: &Arc<[AtomicU64; 2]>) -> Pipeline<Sequential> {
    let again = Arc::clone(waits);
    Pipeline::builder()
        .schedule(Schedule::named(schedule, 2, 4).expect("two ranks"))
        .stages(model(waits).cut(&[4, 4]).expect("all layers"))
        .recut_by(move |cut| {
            let chunks = Some(cut.layers.len() as u32 / 2);
            let schedule = Schedule::make(&cut.schedule, 2, chunks, 4, &Costs::default())?;
            Ok((Replicas::one(schedule), model(&again).cut(&cut.layers)?))
        })
        .loss(MeanSquaredError::default())
        .data(Arc::new(Times(2.0)))
        .pin(false)
        .launch()
        .expect("the parts fit")
}

fn waits() -> Arc<[AtomicU64; 2]> {
    Arc::new([300, 300].map(AtomicU64::new))
}

/// The scheduling of this name, with the usual number of stages on each of two ranks.
fn by(name: &str) -> Scheduling {
    Scheduling::of(Replicas::one(Schedule::named(name, 2, 4).expect("two ranks")))
}

/// A watch that knows how long layers take beside each other, and no more.
fn watch() -> Watch {
    watch_by("1f1b")
}

fn watch_by(schedule: &str) -> Watch {
    let layer = |index| LayerCost {
        name: format!("h.{index}"),
        cost: StageCost::default(),
        backward: 2.0,
        shared: 0.0,
        output: 1.0,
    };
    let costs = ModelCosts::new((0..LAYERS).map(layer).collect(), 1.0, LinkCost::default());
    Watch::new((costs.expect("possible"), false), by(schedule), vec![4, 4], None, 0.0)
}

/// The weights of an undisturbed run of this many steps.
fn undisturbed(steps: u64) -> String {
    let mut pipeline = launch(&Arc::new([0, 0].map(AtomicU64::new)));
    let place = Place::new();
    place.run().steps(steps).train(&mut pipeline).expect("it trains");
    pipeline.weights_hash().expect("it runs")
}

/// The events about the cut, in the history.
fn told(place: &Place) -> Vec<String> {
    let history = place.read("history.jsonl");
    let entries = history.lines().map(|line| serde_json::from_str(line).expect("JSON"));
    let of_cut = entries.filter(|entry: &serde_json::Value| entry["of_cut"] == true);
    of_cut.map(|entry| entry["event"].as_str().expect("text").to_owned()).collect()
}

#[test]
fn layers_leave_a_rank_that_becomes_slow_and_come_back() {
    const STEPS: u64 = 400;
    let (place, waits, cuts) = (Place::new(), waits(), Arc::new(Mutex::new(Vec::<NewCut>::new())));
    let mut pipeline = launch(&waits);
    let (slow, seen) = (Arc::clone(&waits), Arc::clone(&cuts));
    let mut slow_since = None;
    let listen = move |event: &Event<'_>| {
        let mut cuts = seen.lock().expect("no panic");
        match event {
            Event::Step(report) if report.step == 30 => slow[1].store(3000, Ordering::Relaxed),
            // When layers have left it, it becomes fast again.
            Event::Step(report) if slow_since.is_none() && !cuts.is_empty() => {
                slow_since = Some(report.step);
            }
            Event::Step(report) if slow_since.is_some_and(|since| report.step == since + 40) => {
                slow[1].store(300, Ordering::Relaxed);
            }
            Event::NewCut(cut) => cuts.push((*cut).clone()),
            _ => {}
        }
        // It has come back.
        match cuts.len() > 1 && cuts.last().is_some_and(|cut| cut.to.layers[1] >= 3) {
            true => Next::Stop,
            false => Next::Continue,
        }
    };
    let run = place.run().steps(STEPS).save_every(10).replan(Replan::by_itself(watch())).on(listen);
    let outcome = run.train(&mut pipeline).expect("it trains");
    let cuts = cuts.lock().expect("no panic");
    let first = &cuts[0];
    assert!(first.to.layers[1] <= 2 && first.step > 30, "{first:?}");
    let Reason::Faster { slowness, was, will_be } = &first.reason else { panic!("{first:?}") };
    assert!(slowness[1] > 3.0 && will_be < was, "{first:?}");
    assert_eq!(outcome.ended, Ended::Stopped, "layers come back: {cuts:?}");
    assert_eq!(pipeline.weights_hash().expect("it runs"), undisturbed(outcome.steps));
    let told = told(&place);
    let line = format!("cut anew after {} steps: the stages have ", first.step);
    assert!(told[0].starts_with(&line) && told[0].contains("rank 1 "), "{told:?}");
    assert!(told.iter().any(|event| event.starts_with("the new cut is kept: a step took ")), "{told:?}");
}

#[test]
fn a_cut_that_somebody_asks_for_is_taken_before_the_next_step() {
    let (place, waits) = (Place::new(), waits());
    let dir = place.dir();
    let mut pipeline = launch(&waits);
    let asks = place.dir();
    let listen = move |event: &Event<'_>| match event {
        Event::Step(report) if report.step == 2 => {
            assert!(asks.is_training());
            asks.ask_for_cut(Change::layers(vec![1, 7])).expect("it is written");
        }
        // What cannot be read, and what is no cut, changes nothing.
        Event::Step(report) if report.step == 4 => {
            fs::write(asks.asked_cut(), "{\"layers").expect("it is written");
        }
        Event::Step(report) if report.step == 6 => {
            asks.ask_for_cut(Change::layers(vec![1, 6])).expect("it is written");
            let error = asks.ask_for_cut(Change::layers(vec![2, 6])).expect_err("one at a time");
            has(&error, &["somebody asks for another cut already"]);
        }
        Event::Step(report) if report.step == 7 => {
            asks.ask_for_cut(Change::layers(vec![0, 8])).expect("it is written");
        }
        Event::Step(report) if report.step == 8 => {
            asks.ask_for_cut(Change::layers(vec![5, 3])).expect("it is written");
        }
        _ => {}
    };
    let run = place.run().steps(12).replan(Replan::when_asked(watch())).on(listen);
    let outcome = run.train(&mut pipeline).expect("it trains");
    assert!(!dir.is_training() && !dir.asked_cut().exists());
    let told = told(&place);
    for (event, expected) in told.iter().zip([
        "cut anew after 3 steps: the stages have 1, 7 layers instead of 4, 4, as asked (the change took ",
        "not changed: `",
        "not changed: stages of [1, 6] layers do not make up the model's 8",
        "not changed: stages of [0, 8] layers: each needs 1 or more",
        "cut anew after 9 steps: the stages have 5, 3 layers instead of 1, 7, as asked (the change took ",
    ]) {
        assert!(event.starts_with(expected), "{event} instead of {expected}");
    }
    assert_eq!(told.len(), 5, "{told:?}");
    assert_eq!(outcome.warnings.len(), 1, "one of the kind");
    assert_eq!(outcome.warnings[0].task, Task::Replan);
    assert_eq!(pipeline.weights_hash().expect("it runs"), undisturbed(12));

    // A run that is resumed was not asked.
    dir.ask_for_cut(Change::layers(vec![1, 7])).expect("it is written");
    let run = place.run().steps(14).resume(Resume::IfThere).replan(Replan::when_asked(watch()));
    run.train(&mut launch(&waits)).expect("it trains");
    assert_eq!(self::told(&place).len(), 5);
    assert!(!dir.asked_cut().exists());
}

#[test]
fn without_replanning_a_run_keeps_its_cut_and_asking_changes_nothing() {
    let (place, waits) = (Place::new(), waits());
    let asks = place.dir();
    let run = place.run().steps(4).on(move |event| {
        if let Event::Step(report) = event
            && report.step == 1
        {
            asks.ask_for_cut(Change::layers(vec![1, 7])).expect("it is written");
        }
    });
    run.train(&mut launch(&waits)).expect("it trains");
    assert_eq!(told(&place), [""; 0]);
}

#[test]
fn a_schedule_that_somebody_asks_for_is_taken_before_the_next_step() {
    let (place, waits) = (Place::new(), waits());
    let mut pipeline = launch(&waits);
    let asks = place.dir();
    let ask = move |change| {
        asks.ask_for_cut(change).expect("it is written");
    };
    let schedule = |name: &str| Some(name.to_owned());
    let listen = move |event: &Event<'_>| match event {
        Event::Step(report) if report.step == 2 => {
            ask(Change { schedule: schedule("zb-h1"), ..Change::default() });
        }
        Event::Step(report) if report.step == 4 => {
            ask(Change { schedule: schedule("zb-v"), ..Change::layers(vec![1, 2, 3, 2]) });
        }
        // Now it has four stages.
        Event::Step(report) if report.step == 6 => ask(Change::layers(vec![2, 2, 2, 2])),
        Event::Step(report) if report.step == 8 => ask(Change::layers(vec![4, 4])),
        Event::Step(report) if report.step == 10 => {
            ask(Change { schedule: schedule("zb-w"), ..Change::default() });
        }
        Event::Step(report) if report.step == 12 => ask(Change::default()),
        _ => {}
    };
    let run = place.run().steps(14).replan(Replan::when_asked(watch())).on(listen);
    let outcome = run.train(&mut pipeline).expect("it trains");
    let told = told(&place);
    for (event, expected) in told.iter().zip([
        "changed after 3 steps: the schedule is zb-h1 instead of 1f1b, as asked (the change took ",
        "cut anew after 5 steps: the schedule is zb-v instead of zb-h1 and the stages have 1, 2, 3, 2 layers \
         instead of 4, 4, as asked (the change took ",
        "cut anew after 7 steps: the stages have 2, 2, 2, 2 layers instead of 1, 2, 3, 2, as asked (",
        "not changed: schedule zb-v has 2 stages a rank; it was given 1 chunks",
        "not changed: there is no schedule \"zb-w\", did you mean zb-v?",
        "not changed: nothing would be other than now",
    ]) {
        assert!(event.starts_with(expected), "{event} instead of {expected}");
    }
    assert_eq!(told.len(), 6, "{told:?}");
    assert!(outcome.warnings.is_empty(), "who asks is told");
    assert_eq!(pipeline.weights_hash().expect("it runs"), undisturbed(14));
}

/// Whoever makes the stages of a cut has to follow what it says.
#[test]
fn a_cut_that_is_not_the_one_that_was_asked_for_is_refused() {
    let (place, waits) = (Place::new(), waits());
    let mut pipeline = launch(&waits);
    let asks = place.dir();
    let listen = move |event: &Event<'_>| {
        if let Event::Step(report) = event
            && report.step == 1
        {
            asks.ask_for_cut(Change { replicas: Some(2), ..Change::default() }).expect("it is written");
        }
    };
    let run = place.run().steps(4).replan(Replan::when_asked(watch())).on(listen);
    run.train(&mut pipeline).expect("it trains");
    let told = told(&place);
    let expected = "not changed: `PipelineBuilder::recut_by` makes 1 replica and 2 stages for this cut: ";
    assert!(told.len() == 1 && told[0].starts_with(expected), "{told:?}");
}

/// By gpipe a rank holds all micro-batches. In as much memory, four stages wait less than two. Where other
/// programs hold the steps up, the change may be taken back and made again.
#[test]
fn a_run_changes_to_a_schedule_that_is_faster_and_keeps_it() {
    const STEPS: u64 = 2000;
    let (place, waits) = (Place::new(), Arc::new([2000, 2000].map(AtomicU64::new)));
    let mut pipeline = launch_by("gpipe", &waits);
    let mut newest = None;
    let listen = move |event: &Event<'_>| match event {
        Event::NewCut(cut) => {
            newest = Some(cut.to.schedule.clone());
            Next::Continue
        }
        Event::CutIsKept { before, now } => {
            assert!(now < before, "{now} s instead of {before}");
            match newest.as_deref() {
                Some("interleaved-1f1b") => Next::Stop,
                _ => Next::Continue,
            }
        }
        _ => Next::Continue,
    };
    let watch = watch_by("gpipe").or(["1f1b", "gpipe", "interleaved-1f1b"].map(by).into());
    let run = place.run().steps(STEPS).save_every(0).replan(Replan::by_itself(watch)).on(listen);
    let outcome = run.train(&mut pipeline).expect("it trains");
    let told = told(&place);
    assert_eq!(outcome.ended, Ended::Stopped, "{told:?}");
    assert_eq!(pipeline.schedule().name(), "interleaved-1f1b");
    assert!(told.iter().any(|event| event.starts_with("the new cut is kept: a step took ")), "{told:?}");
    assert_eq!(pipeline.weights_hash().expect("it runs"), undisturbed(outcome.steps));
}
