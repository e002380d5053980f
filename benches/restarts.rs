//! What restarts cost while nothing fails, and how long one takes: all of it, or what is named (`A`, `B` or
//! `C`: what they cost at that size; `recovery`). A number is the rounds.

#[path = "../tests/common/failing.rs"]
mod failing;

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Instant;

use failing::{Failing, Faults, How};
use pipewright::Pipeline;
use pipewright::data::{Corpus, Windows};
use pipewright::schedule::Schedule;
use pipewright::stages::loss::CrossEntropy;
use pipewright::stages::models::{Gpt, Model};

/// The steps from one snapshot to the next.
const EVERY: u32 = 10;

/// A model and a batch: see `compare_torch/sizes.rs`.
struct Size {
    name: &'static str,
    gpt: Gpt,
    rows: usize,
    micro_batches: u32,
    /// The steps of a round.
    steps: usize,
}

fn sizes() -> [Size; 3] {
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
    let size = |name, gpt, rows, micro_batches, steps| Size { name, gpt, rows, micro_batches, steps };
    [
        size("A", gpt(256, 8, 8, 128), 4, 8, 6),
        size("B", gpt(512, 8, 8, 256), 2, 8, 2),
        // A model with next to no work: what is measured is the engine.
        size("C", gpt(8, 0, 1, 8), 1, 64, 300),
    ]
}

impl Size {
    fn model(&self) -> Result<Model> {
        if self.gpt.layers > 0 {
            return Ok(self.gpt.model()?);
        }
        let mut units = Gpt { layers: 1, ..self.gpt }.model()?.into_units();
        units.retain(|unit| !unit.name.starts_with("h."));
        Ok(Model::new(units))
    }

    fn launch(&self, ranks: u32, restarts: u32, faults: &Faults) -> Result<Pipeline<Failing>> {
        let corpus = Arc::new(Corpus::built_in());
        let all = 0..corpus.count();
        let data = Windows::drawn(corpus, all, self.rows, self.gpt.context, 1)?;
        let stages = self.model()?.split(ranks)?.into_iter();
        let stages = (0..ranks).zip(stages).map(|(rank, stage)| {
            let is_last = rank + 1 == ranks;
            Failing::around(stage, if is_last { faults.clone() } else { Faults::default() })
        });
        Ok(Pipeline::builder()
            .schedule(Schedule::named("1f1b", ranks, self.micro_batches)?)
            .stages(stages.collect())
            .loss(CrossEntropy::default())
            .data(Arc::new(data))
            .restarts(restarts, NonZeroU32::new(EVERY).expect("not 0"))
            .launch()?)
    }
}

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The median.
fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_unstable_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

/// The seconds of `steps` steps.
fn time(pipeline: &mut Pipeline<Failing>, steps: usize) -> Result<f64> {
    let since = Instant::now();
    for _ in 0..steps {
        pipeline.step()?;
    }
    Ok(since.elapsed().as_secs_f64())
}

/// The time of steps with snapshots and kept wires, beside the time of steps without.
fn overhead(size: &Size, rounds: usize) -> Result<()> {
    let mut without = size.launch(2, 0, &Faults::default())?;
    let mut with = size.launch(2, 3, &Faults::default())?;
    time(&mut without, size.steps)?;
    time(&mut with, size.steps)?;
    let mut ratios = Vec::new();
    let mut seconds = Vec::new();
    for _ in 0..rounds {
        let plain = time(&mut without, size.steps)?;
        ratios.push(time(&mut with, size.steps)? / plain);
        seconds.push(plain / size.steps as f64);
    }
    let [least, most] = [f64::min, f64::max].map(|pick| ratios.iter().copied().reduce(pick));
    println!(
        "size {}: {:.1} ms a step without; with restarts {:.3} of that ({:.3} to {:.3}), {rounds} rounds \
         of {} steps in turn",
        size.name,
        1e3 * median(seconds),
        median(ratios.clone()),
        least.unwrap_or(0.0),
        most.unwrap_or(0.0),
        size.steps
    );
    Ok(())
}

/// How long a failure of the last rank takes, in the middle of a step.
fn recovery(size: &Size, ranks: u32, step: u64) -> Result<()> {
    // A pass calls twice; 1f1b has a forward and a whole backward (two passes here) for each micro-batch.
    let calls = 6 * u64::from(size.micro_batches);
    let faults = Faults::at(&[(step * calls + calls / 2, How::Fails)]);
    let mut pipeline = size.launch(ranks, 3, &faults)?;
    let mut times = Vec::new();
    let restart = loop {
        let since = Instant::now();
        let report = pipeline.step()?;
        times.push(since.elapsed().as_secs_f64());
        if let Some(restart) = report.restarts.into_iter().next() {
            break restart;
        }
    };
    let failed = times.pop().unwrap_or_default();
    println!(
        "size {}, {ranks} ranks, a failure in step {step}: the rank was built and had repeated {} steps \
         after {:.1} ms; the step took {:.1} ms, others {:.1} ms",
        size.name,
        restart.repeated,
        1e3 * restart.seconds,
        1e3 * failed,
        1e3 * median(times)
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
    for size in sizes() {
        if named(size.name) {
            overhead(&size, rounds)?;
        }
    }
    if !named("recovery") {
        return Ok(());
    }
    let [a, ..] = sizes();
    // The first snapshot has no optimizer state, and so as much is kept after four steps.
    for step in [4, 8, 13] {
        recovery(&a, 2, step)?;
    }
    for ranks in [4, 8] {
        recovery(&a, ranks, 4)?;
    }
    Ok(())
}
