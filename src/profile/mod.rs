//! What the layers of a model cost on this machine: measured while they train, as they train.

mod file;
mod link;
mod samples;
mod timed;

pub use file::{Measured, Settings, machine};

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::unbounded;
use pipewright_stages::loss::Loss;
use pipewright_stages::models::Model;
use pipewright_stages::optimizer::Optimizer;
use pipewright_stages::{Recompute, Tensor, recompute};

use crate::data::DataSource;
use crate::error::Result;
use crate::pipeline::Pipeline;
use crate::plan::ModelCosts;
use crate::schedule::Schedule;
use samples::Samples;
use timed::{TimedLoss, TimedOptimizer, timed};

/// Steps that are not counted: first touches of memory, optimizer state, cold caches.
const WARM_UP: u64 = 2;

/// Passes of each layer that are measured if there is time.
const ENOUGH: u64 = 40;

/// Steps that are counted at least, and how long more of them may go on.
const LEAST: u64 = 3;
const LONGEST: Duration = Duration::from_secs(1);

/// What is to be measured.
pub struct Subject<L, O> {
    /// The model.
    pub model: Model,
    /// How many ranks are busy at once: they share caches and memory.
    pub ranks: u32,
    /// The micro-batches of a step.
    pub micro_batches: u32,
    /// The loss.
    pub loss: L,
    /// The data; the size of its micro-batches is what the costs are those of.
    pub data: Arc<dyn DataSource>,
    /// How weights change.
    pub optimizer: O,
    /// Whether composite layers recompute their interiors in backward.
    pub selective: bool,
    /// How many threads a rank uses inside layers.
    pub threads_per_rank: usize,
    /// Whether each thread is pinned to a core of its own.
    pub pin: bool,
}

impl<L, O> fmt::Debug for Subject<L, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subject")
            .field("model", &self.model)
            .finish_non_exhaustive()
    }
}

/// Trains the model for a few steps, a few seconds at most, with every layer's passes timed: with backwards in one piece and
/// with backwards in two halves. Then times the links between ranks. `tell` hears of every step: how many are done, and how
/// many there will be at most.
///
/// # Errors
/// What stops the pipeline from being launched or from running a step.
pub fn measure<L: Loss<Tensor>, O: Optimizer>(
    subject: impl Fn() -> Result<Subject<L, O>>,
    mut tell: impl FnMut(u64, u64),
) -> Result<ModelCosts> {
    let one = train(subject()?, "1f1b", |done, all| tell(done, 2 * all))?;
    let halves = train(subject()?, "zb-h1", |done, all| tell(all + done, 2 * all))?;
    let mut layers = halves.costs();
    for (layer, one) in layers.iter_mut().zip(one.costs()) {
        layer.backward = one.backward;
    }
    let largest = layers.iter().map(|layer| layer.output).fold(0.0, f64::max);
    let Subject { data, pin, .. } = subject()?;
    let input = data.shapes().0.count() as f64 * size_of::<u32>() as f64;
    ModelCosts::new(layers, input, link::measure(largest as u64, pin)?)
}

/// Trains for a few steps under a schedule.
fn train<L: Loss<Tensor>, O: Optimizer>(
    subject: Subject<L, O>,
    schedule: &str,
    mut tell: impl FnMut(u64, u64),
) -> Result<Samples> {
    let (log, heard) = unbounded();
    let units = subject.model.into_units();
    let mut samples = Samples::of(units.iter().map(|unit| unit.name.clone()));
    let last = units.len().saturating_sub(1);
    let units = units.into_iter().enumerate();
    let model = Model::new(
        units
            .map(|(layer, unit)| timed(layer, unit, log.clone()))
            .collect(),
    );
    let ranks = subject.ranks.min(last as u32 + 1);
    let how = if subject.selective {
        Recompute::Selective
    } else {
        Recompute::None
    };
    let stages = model.split(ranks as usize)?.into_iter();
    let mut pipeline = Pipeline::builder()
        .schedule(Schedule::named(schedule, ranks, subject.micro_batches)?)
        .stages(stages.map(|stage| recompute(stage, how)).collect())
        .data(subject.data)
        .loss(TimedLoss {
            loss: subject.loss,
            layer: last,
            log: log.clone(),
        })
        .optimizer(TimedOptimizer {
            optimizer: subject.optimizer,
            log,
        })
        .threads_per_rank(subject.threads_per_rank)
        .pin(subject.pin)
        .launch()?;
    let steps = WARM_UP + ENOUGH.div_ceil(subject.micro_batches.into()).max(LEAST);
    let started = Instant::now();
    for step in 0..steps {
        pipeline.step()?;
        samples.add(heard.try_iter(), step >= WARM_UP);
        tell(step + 1, steps);
        if step + 1 >= WARM_UP + LEAST && started.elapsed() > LONGEST {
            break;
        }
    }
    Ok(samples)
}

/// The lower quartile of some times: what something takes when nothing else of the machine comes between, even if most
/// of the times something does. 0 when there are none.
fn undisturbed(times: impl IntoIterator<Item = f64>) -> f64 {
    let mut times: Vec<f64> = times.into_iter().collect();
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 4).copied().unwrap_or(0.0)
}
