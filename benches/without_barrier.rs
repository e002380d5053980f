//! Steps without a barrier, beside steps with one: with models (`A`, `B`, `M`) on two ranks, and with passes
//! that sleep (`sleep`) on more ranks than there are cores. All of it, or what is named: sizes and
//! schedules. A number is the rounds.

mod support;

use std::sync::Arc;
use std::time::Instant;

use pipewright::data::{Corpus, Windows};
use pipewright::plan::StageCost;
use pipewright::schedule::Schedule;
use pipewright::stages::Stage;
use pipewright::stages::loss::CrossEntropy;
use pipewright::stages::models::Gpt;
use pipewright::{Pipeline, PipelineBuilder};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The names of schedules whose ranks end a step at different times, and of two whose ranks do not.
const SCHEDULES: [&str; 5] = ["1f1b", "zb-h1", "zb-2p", "zb-v", "v-half"];

/// A pass that sleeps, in seconds.
const PASS: f64 = 2e-3;

/// A model and a batch: see `compare_torch/sizes.rs`. `M` is `A` with half the work a step.
fn sizes() -> [(&'static str, Gpt, usize, u32); 3] {
    let gpt = |dim, layers, heads, context| Gpt {
        vocab: 256,
        dim,
        layers,
        heads,
        context,
        dropout: 0.0,
        tied: false,
        seed: 0,
    };
    [("A", gpt(256, 8, 8, 128), 4, 8), ("B", gpt(512, 8, 8, 256), 2, 8), ("M", gpt(256, 8, 8, 128), 4, 4)]
}

fn of_model(schedule: Schedule, gpt: Gpt, rows: usize) -> Result<PipelineBuilder<impl Stage>> {
    let corpus = Arc::new(Corpus::built_in());
    let all = 0..corpus.count();
    let data = Windows::drawn(corpus, all, rows, gpt.context, 1)?;
    let stages = gpt.model()?.split(schedule.stages())?;
    let builder = Pipeline::builder().schedule(schedule).stages(stages);
    Ok(builder.loss(CrossEntropy::default()).data(Arc::new(data)))
}

fn of_sleep(schedule: Schedule) -> PipelineBuilder<impl Stage> {
    let share = f64::from(schedule.ranks()) / f64::from(schedule.stages());
    let pass = PASS * share;
    let cost =
        StageCost { forward: pass, backward_input: pass, backward_weight: pass, ..StageCost::default() };
    let costs = vec![cost; schedule.stages() as usize];
    support::builder(schedule, costs).pin(false)
}

/// The seconds a step, of `steps` steps that follow each other.
fn time<S: Stage>(pipeline: &mut Pipeline<S>, steps: u64) -> Result<f64> {
    pipeline.steps_until(pipeline.next_step() + steps);
    let since = Instant::now();
    for _ in 0..steps {
        pipeline.step()?;
    }
    Ok(since.elapsed().as_secs_f64() / steps as f64)
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_unstable_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

/// Compares the two in turn.
fn compare<S: Stage>(
    what: &str,
    make: impl Fn() -> Result<PipelineBuilder<S>>,
    (rounds, steps): (usize, u64),
) -> Result<()> {
    let mut with = make()?.launch()?;
    let mut without = make()?.barrier(false).launch()?;
    time(&mut with, steps)?;
    time(&mut without, steps)?;
    let mut ratios = Vec::new();
    let mut seconds = Vec::new();
    for _ in 0..rounds {
        let barrier = time(&mut with, steps)?;
        ratios.push(time(&mut without, steps)? / barrier);
        seconds.push(barrier);
    }
    let [least, most] = [f64::min, f64::max].map(|pick| ratios.iter().copied().reduce(pick).unwrap_or(0.0));
    println!(
        "{what}: {:.2} ms a step with a barrier; without {:.3} of that ({least:.3} to {most:.3}), {rounds} \
         rounds of {steps} steps in turn",
        1e3 * median(seconds),
        median(ratios)
    );
    Ok(())
}

fn main() -> Result<()> {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let rounds = given.iter().find_map(|arg| arg.parse().ok()).unwrap_or(9);
    let named = |name: &str| {
        let mut names = given.iter().filter(|arg| arg.parse::<usize>().is_err());
        names.clone().all(|arg| arg.starts_with('-')) || names.any(|arg| arg == name)
    };
    let chosen = |schedule: &&&str| {
        let mut schedules = given.iter().filter(|arg| SCHEDULES.contains(&arg.as_str()));
        schedules.clone().count() == 0 || schedules.any(|arg| arg == **schedule)
    };
    for (name, gpt, rows, micro_batches) in sizes() {
        for schedule in SCHEDULES.iter().filter(chosen).filter(|_| named(name)) {
            let what = format!("size {name}, {micro_batches} micro-batches, 2 ranks, {schedule}");
            let make = || of_model(Schedule::named(schedule, 2, micro_batches)?, gpt, rows);
            compare(&what, make, (rounds, 12))?;
        }
    }
    for (ranks, micro_batches) in [(4, 8), (4, 16), (8, 16), (8, 32)] {
        for schedule in SCHEDULES.iter().filter(chosen).filter(|_| named("sleep")) {
            let what =
                format!("passes of {PASS} s, {ranks} ranks, {micro_batches} micro-batches, {schedule}");
            let make = || Ok(of_sleep(Schedule::named(schedule, ranks, micro_batches)?));
            compare(&what, make, (rounds, 12))?;
        }
    }
    Ok(())
}
