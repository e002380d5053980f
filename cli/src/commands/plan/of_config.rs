//! The plan of a config's training, from measured costs.

use std::path::Path;

use super::{Args, Format, Subject, Training, kernels};
use crate::commands::bars::measure;
use crate::commands::{cuda_env, memory};
use crate::compose::{self, PipelinePlan, RanksHere};
use crate::config::Config;
use crate::profile::MemoryLimit;
use crate::{Error, Result};
use pipewright::plan::{Cluster, Costs, ModelCosts, Prediction, RankMemory};
use pipewright::stages::Device;
use pipewright::stages::units::counted;

/// The schedule that `train` runs for this config, the costs of its stages, a forecast of a step, and the
/// memory of its ranks. Times are in seconds and sizes in bytes; a table has milliseconds and MiB.
///
/// Costs come from the file that the config names. Without one the layers are measured now. That measurement
/// only says how long a step takes: it changes neither the cut nor the order. CSV contains no times, so
/// nothing is measured for it. Where there is too little memory to measure, every pass takes the time 1.
///
/// For GPUs that are not here, costs come from the model of such a GPU, and its memory is the limit.
///
/// Training that needs more memory than this machine has is planned with a warning, since it may be for
/// another machine.
pub(super) fn subject(path: &Path, args: &Args) -> Result<Subject> {
    let mut config = Config::load(path, &args.sets).map_err(Error::not_begun)?;
    if let Some(costs) = &args.costs {
        config.pipeline.costs = Some(costs.clone());
    }
    crate::commands::tell_search_of(&config);
    let (plan, limits, kernels) = match &args.gpus.kind {
        Some(gpu) => {
            let limits;
            (config, limits) = compose::with_gpus(config, gpu)?;
            let plan = compose::plan_for(&config, gpu)?;
            (plan, limits, kernels::table(&config, gpu)?)
        }
        None => {
            cuda_env::enter_for(&config);
            let plan = compose::plan(&config)?;
            (plan, compose::memory_limits(&config)?, String::new())
        }
    };
    for warning in &plan.warnings {
        eprintln!("warning: {warning}");
    }
    if let Some(why) = &plan.why {
        eprintln!("{why}");
    }
    tell_privacy(&config);
    let held = compose::memory(&config, &plan)?;
    let all = RanksHere::all([plan.replicas.count(), plan.replicas.ranks(), config.pipeline.shards]);
    // The memory of other hosts is not known here.
    let is_here = args.gpus.kind.is_some() || !args.cluster.are_of_hosts();
    if let Some(error) =
        is_here.then(|| compose::check_memory(&config, &held, &all, &limits)).and_then(Result::err)
    {
        eprintln!("warning: {error}");
    }
    if let (None, Format::Csv) = (&plan.costs, args.format) {
        return Ok(Subject {
            replicas: plan.replicas,
            costs: Costs::default(),
            measured: false,
            training: None,
        });
    }
    let told = Told { path, config: &config, args, held, kernels };
    match layers(&config, &plan, &limits, args.cluster.hosts())? {
        Some((layers, cluster)) => told.predicted(plan, layers, &cluster),
        None => told.unmeasured(plan),
    }
}

/// Says what the training will spend of privacy, if it is private. The data may be elsewhere.
fn tell_privacy(config: &Config) {
    if !config.is_private() {
        return;
    }
    match compose::data(config) {
        Ok(data) => {
            let spent = compose::accountant(config, &data).map(|one| one.spent(config.train.steps));
            let spent = spent.iter().map(ToString::to_string).collect::<String>();
            eprintln!("privacy: {spent} after {}", counted(config.train.steps, "step"));
        }
        Err(error) => eprintln!("warning: epsilon is not known, since the data cannot be read: {error}"),
    }
}

/// What layers and messages cost: as a file says, or measured now. `None` where there is too little memory to
/// measure.
fn layers(
    config: &Config,
    plan: &PipelinePlan,
    limits: &[(Device, MemoryLimit)],
    hosts: u32,
) -> Result<Option<(ModelCosts, Cluster)>> {
    if let (Some(costs), Some(cluster)) = (&plan.costs, plan.cluster) {
        return Ok(Some((costs.clone(), cluster)));
    }
    match measure(config, "what each layer costs, since no file tells", limits, hosts) {
        Ok(measured) => Ok(Some((compose::costs_of(config, &measured)?, measured.cluster(1)))),
        Err(error) if error.is_out_of_memory() => {
            eprintln!(
                "warning: the costs of layers are not measured, so every pass takes the time 1 (--costs FILE \
                 names costs that were measured elsewhere): {error}"
            );
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// What is told of a config's training.
struct Told<'a> {
    path: &'a Path,
    config: &'a Config,
    args: &'a Args,
    held: Vec<RankMemory>,
    /// What GPUs run that are not here.
    kernels: String,
}

impl Told<'_> {
    /// With the prediction of a step by these costs, and by the links that the options give.
    fn predicted(self, plan: PipelinePlan, layers: ModelCosts, measured: &Cluster) -> Result<Subject> {
        let time = match self.args.format {
            Format::Table => 1e3,
            Format::Csv | Format::Json | Format::Svg => 1.0,
        };
        let cluster = self.args.cluster.of(measured);
        let layers = compose::on_cluster(self.config, plan.replicas.ranks(), layers, &cluster)?;
        let costs = layers.in_units(time, 1.0 / self.unit()).stages(&plan.counts)?;
        let prediction = Prediction::of_replicas(&plan.replicas, &costs, self.args.links)?;
        let prediction = match self.config.pipeline.barrier {
            true => prediction,
            false => prediction.without_barrier(&plan.replicas, &costs, self.args.links)?,
        };
        let (step, unit) = (prediction.step / time, self.config.unit());
        let tokens = plan.tokens.map(|tokens| tokens * f64::from(self.config.pipeline.micro_batches));
        let rate = tokens.unwrap_or(self.config.targets() as f64) / step;
        let first = format!(
            "predicted step {step:.4} s, {rate:.0} {unit}/s, bubble {:.1} %, peak {:.1} MiB on a rank",
            100.0 * prediction.bubble,
            prediction.peak_memory,
        );
        Ok(self.subject(plan, costs, &first, Some(rate)))
    }

    /// With estimated memory, and without times.
    fn unmeasured(self, plan: PipelinePlan) -> Result<Subject> {
        let costs = compose::estimated_costs(self.config, &plan, self.unit())?;
        Ok(self.subject(plan, costs, "not measured, every pass takes the time 1", None))
    }

    /// How many bytes a unit of memory has.
    fn unit(&self) -> f64 {
        match self.args.format {
            Format::Table => f64::from(1 << 20),
            Format::Csv | Format::Json | Format::Svg => 1.0,
        }
    }

    fn subject(self, plan: PipelinePlan, costs: Costs, first: &str, rate: Option<f64>) -> Subject {
        let counts: Vec<String> = plan.counts.iter().map(ToString::to_string).collect();
        let times = if rate.is_some() { "times in ms, " } else { "" };
        Subject {
            replicas: plan.replicas,
            costs,
            measured: rate.is_some(),
            training: Some(Training {
                forecast: format!(
                    "{}: {first}\nlayers of each stage: {}; {times}memory in MiB\n{}\n{}\n{}",
                    self.path.display(),
                    counts.join(", "),
                    staleness(self.config.max_staleness()),
                    memory::table(&self.held, [self.config.pipeline.replicas, self.config.pipeline.shards]),
                    self.kernels,
                ),
                rate,
                memory: self.held,
            }),
        }
    }
}

/// What a prediction leaves out, if weights may be stale.
fn staleness(most: u32) -> String {
    match most {
        0 => String::new(),
        _ => format!(
            "weights at most {most} steps old are not simulated: in the predicted step each replica waits \
             for all others\n"
        ),
    }
}
