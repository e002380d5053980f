//! Measures what the layers of a model cost on this machine, while they train.

mod addition;
mod arrival;
mod between;
mod cpu;
mod file;
mod link;
mod machine_memory;
mod observation;
mod samples;
mod stopwatch;
mod timed;

pub use addition::addition;
pub use between::between;
pub use cpu::Cpu;
pub use file::{Between, DEVICES, Measured, ON_CPU, Settings, machine};
pub use machine_memory::MemoryLimit;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::unbounded;
use pipewright::stages::loss::Loss;
use pipewright::stages::models::Model;
use pipewright::stages::optimizer::Optimizer;
use pipewright::stages::{
    BuildStage, Device, Kind, Place, Recompute, RecomputedStage, Sequential, Shard, StageBuilder, Tensor,
    recompute,
};

use crate::error::{Error, Result};
use observation::Log;
use pipewright::data::DataSource;
use pipewright::pipeline::Pipeline;
use pipewright::plan::{LayerCost, MeasuredShards, ModelCosts};
use pipewright::schedule::Schedule;
use samples::Samples;
use timed::{TimedLoss, TimedOptimizer};

/// Steps that are not counted: in these, memory is touched for the first time, the optimizer makes its state,
/// and caches are cold.
const WARM_UP: u64 = 2;

/// Passes of each layer that are measured, if there is time.
const ENOUGH: u64 = 40;

/// The smallest number of steps to count, and the time after which no further ones are.
const LEAST: u64 = 3;
const LONGEST: Duration = Duration::from_secs(1);

/// What to measure.
pub struct Subject<L, O> {
    /// The model.
    pub model: Model,
    /// How many ranks work at once. They share caches and memory.
    pub ranks: u32,
    /// How many shards each rank has. The costs are those of one of them.
    pub shards: u32,
    /// Where each shard of each rank runs: all on the CPU, or all on GPUs. Empty: on the CPU.
    pub places: Vec<Place>,
    /// The micro-batches of a step.
    pub micro_batches: u32,
    /// The loss.
    pub loss: L,
    /// The data. The costs are for micro-batches of its size.
    pub data: Arc<dyn DataSource>,
    /// How its micro-batches differ, if they do.
    pub work: Option<Work>,
    /// How weights change.
    pub optimizer: O,
    /// Whether ranks on GPUs keep its state on the host.
    pub state_on_host: bool,
    /// What stages recompute: not [`Recompute::Full`], because what that takes follows from the costs.
    pub recompute: Recompute,
    /// How many threads a rank uses inside layers.
    pub threads_per_rank: usize,
    /// Whether each thread is pinned to a core of its own.
    pub pin: bool,
}

/// How the micro-batches of a training differ in their work. The unit is the work of a mean one.
pub struct Work {
    /// The work of a whole step.
    pub of_step: Box<dyn Fn(u64) -> f64>,
    /// The work of each micro-batch of a usual step.
    pub usual: Vec<f64>,
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Work").field("usual", &self.usual).finish_non_exhaustive()
    }
}

impl<L, O> fmt::Debug for Subject<L, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subject").field("model", &self.model).finish_non_exhaustive()
    }
}

/// Refuses places that are not all on the CPU or all on GPUs, or that differ in their numbers: one cost of a
/// layer stands for all ranks.
///
/// # Errors
/// When they are or do.
pub fn check_places(places: &[Place]) -> Result<()> {
    let kind = |place: &Place| (place.device == Device::Cpu, place.dtype);
    if places.windows(2).all(|pair| kind(&pair[0]) == kind(&pair[1])) {
        return Ok(());
    }
    Err(Error::refused(
        "one cost of a layer is for all ranks, and these ranks are not all on the CPU, or all on GPUs with \
         the same numbers: put them on one kind of device, or train without costs",
    ))
}

/// Trains the model for a few steps, which takes a few seconds at most, and times every layer's passes: first
/// with whole backwards, then with backwards in two halves. After that it times the links between ranks.
///
/// `tell` is called after every step with the number of steps done and the largest number there may be.
///
/// # Errors
/// As [`check_places`], and whatever prevents launching the pipeline or running a step.
pub fn measure<L: Loss<Tensor> + Clone, O: Optimizer>(
    subject: impl Fn() -> Result<Subject<L, O>>,
    mut tell: impl FnMut(u64, u64),
) -> Result<ModelCosts> {
    check_places(&subject()?.places)?;
    let one = train(subject()?, "1f1b", |done, all| tell(done, 2 * all))?;
    let halves = train(subject()?, "zb-h1", |done, all| tell(all + done, 2 * all))?;
    let waits = one.waits();
    let Subject { ranks, shards, places, data, work, pin, .. } = subject()?;
    let of_step = work.as_ref().map(|work| &*work.of_step);
    let mut layers = halves.costs(of_step);
    for (layer, one) in layers.iter_mut().zip(one.costs(of_step)) {
        layer.backward = one.backward;
        if layer.cost.backward_weight == 0.0 {
            layer.cost.backward_input = one.backward;
        }
    }
    let (input, place) = (data.shapes().0, places.first().copied().unwrap_or_default());
    let bytes = match input.kind() {
        Kind::Ids => size_of::<u32>(),
        Kind::F32 => place.dtype.bytes(),
    };
    let link = match place.device {
        Device::Cpu => link::measure(largest(&layers) as u64, pin)?,
        Device::Cuda(_) => {
            // The last layer's output is not sent to another stage, and it may be larger than all outputs
            // that are.
            let wires = &layers[..layers.len().saturating_sub(1)];
            let first: Vec<Place> = places.iter().step_by(shards as usize).copied().collect();
            arrival::measure(largest(wires) as u64, ranks, &first)?
        }
    };
    let costs = ModelCosts::new(layers, (input.count() * bytes) as f64, link)?;
    let costs = costs.uneven(work.map_or_else(Vec::new, |work| work.usual))?;
    Ok(costs.of_shards(MeasuredShards { count: shards, waits })?)
}

/// Bytes of the largest output.
fn largest(layers: &[LayerCost]) -> f64 {
    layers.iter().map(|layer| layer.output).fold(0.0, f64::max)
}

/// Trains for a few steps under a schedule.
fn train<L: Loss<Tensor> + Clone, O: Optimizer>(
    subject: Subject<L, O>,
    schedule: &str,
    mut tell: impl FnMut(u64, u64),
) -> Result<Samples> {
    let (log, heard) = unbounded();
    let mut samples = Samples::of(subject.model.names().into_iter().map(str::to_owned));
    let on_gpus = subject.places.iter().any(|place| place.device != Device::Cpu);
    // The times of a GPU's step are known in the next step.
    let late = u64::from(on_gpus);
    let (shards, micro_batches) = (subject.shards as usize, f64::from(subject.micro_batches));
    let steps = WARM_UP + ENOUGH.div_ceil(subject.micro_batches.into()).max(LEAST) + late;
    let mut pipeline = launch(subject, schedule, log)?;
    let started = Instant::now();
    for step in 0..steps {
        let report = pipeline.step()?;
        samples.add(heard.try_iter(), WARM_UP);
        if step >= WARM_UP {
            let waits = report.ranks.iter().step_by(shards).map(|first| first.shard_waiting);
            samples.add_waits(waits.sum::<f64>() / micro_batches);
        }
        tell(step + 1, steps);
        if step + 1 >= WARM_UP + LEAST + late && started.elapsed() > LONGEST {
            break;
        }
    }
    Ok(samples)
}

/// Starts a pipeline with one stage a rank. Its layers, loss and optimizer send their times to the log.
fn launch<L: Loss<Tensor> + Clone, O: Optimizer>(
    subject: Subject<L, O>,
    schedule: &str,
    log: Log,
) -> pipewright::Result<Pipeline<RecomputedStage<Sequential>>> {
    let last = subject.model.names().len().saturating_sub(1);
    let model = subject.model.map_units(|layer, unit| timed::unit(layer, unit, log.clone()));
    let (ranks, shards) = (subject.ranks.min(last as u32 + 1), subject.shards);
    let mut places = subject.places;
    places.truncate((ranks * shards) as usize);
    let device = |rank: usize| places.get(rank * shards as usize).copied().unwrap_or_default().device;
    let stages = model.split(ranks)?.into_iter().enumerate();
    let stages = stages.map(|(rank, stage)| {
        let timed: StageBuilder<Sequential> = Box::new(TimedStage { device: device(rank), stage });
        recompute(timed, subject.recompute)
    });
    let stages = stages.collect();
    Pipeline::builder()
        .schedule(Schedule::named(schedule, ranks, subject.micro_batches)?)
        .stages(stages)
        .shards(shards)
        .places(places)
        .data(subject.data)
        .loss(TimedLoss { loss: subject.loss, layer: last, log: log.clone() })
        .optimizer(TimedOptimizer { optimizer: subject.optimizer, log })
        .state_on_host(subject.state_on_host)
        .threads_per_rank(subject.threads_per_rank)
        .pin(subject.pin)
        .launch()
}

/// A stage whose first shard is timed, by the clock of its device.
struct TimedStage {
    device: Device,
    stage: StageBuilder<Sequential>,
}

impl BuildStage<Sequential> for TimedStage {
    fn build(&self) -> pipewright::stages::Result<Sequential> {
        self.build_shard(Shard::WHOLE)
    }

    fn build_shard(&self, shard: Shard) -> pipewright::stages::Result<Sequential> {
        if shard.index == 0 {
            stopwatch::time_on(self.device)?;
        }
        self.stage.build_shard(shard)
    }
}
