//! The costs of a config's layers: read from the file that it names, or measured now.

use std::path::Path;
use std::sync::Arc;

use pipewright::data::Packing;
use pipewright::stages::devices::host_speed;
use pipewright::stages::layers::rows_at_once;
use pipewright::stages::loss::AnyLoss;
use pipewright::stages::models::{Exchanges, UnitSizes};
use pipewright::stages::optimizer::Optimizer;
use pipewright::stages::{DType, Device, Place, Recompute};
use toml::Value;

use super::mixed::{tokens, work};
use super::model::{Sizes, estimated_counts, sizes};
use super::offload::{STATE_ON_HOST, with_host};
use super::places::{check_gpus, places_of_shards};
use super::schedule::unfitted;
use super::trained::trained;
use super::{TrainingData, data, kinds_of_gpus, loss, model, optimizer};
use crate::config::{Config, PackingBy, RecomputeBy};
use crate::error::Result;
use crate::error::ValueProblem;
use crate::profile::{self, Cpu, Measured, Settings, Subject};
use pipewright::plan::{Cluster, LinkCost, ModelCosts, Reduction, ShardCost, ShardMessages};

/// Bytes of a weight, and of its gradient.
const F32: f64 = 4.0;

/// What is in the file `pipeline.costs`.
pub(super) struct InFile {
    /// By any schedule.
    pub(super) costs: ModelCosts,
    pub(super) cluster: Cluster,
    /// The tokens of a mean micro-batch, where micro-batches differ.
    pub(super) tokens: Option<f64>,
    /// That the costs were measured on another machine.
    pub(super) warning: Option<String>,
}

/// The costs in the file `pipeline.costs`. `None` if there is no such key.
///
/// # Errors
/// As for [`measured_in`].
pub(super) fn in_file(config: &Config) -> Result<Option<InFile>> {
    let Some(path) = config.pipeline.costs.as_deref() else {
        return Ok(None);
    };
    let (measured, warning) = measured_in(config, path)?;
    Ok(Some(InFile {
        cluster: measured.cluster(1),
        costs: costs_by_any(config, &measured)?,
        tokens: measured.tokens,
        warning,
    }))
}

/// What was measured for this config's layers, in a file. Also a warning if it was on another machine.
///
/// # Errors
/// When the file cannot be read, is incomplete, or was measured for another model or micro-batch. The error
/// names the file, and the layer, key or setting.
pub fn measured_in(config: &Config, path: &Path) -> Result<(Measured, Option<String>)> {
    let measured = Measured::read(path)?;
    let (model, machine) = (model(config)?, machine(config)?);
    let (mut settings, defaults) = (settings(config)?, settings(&Config::default())?);
    // A key that there was not yet when it was measured had its default.
    settings.retain(|key, value| measured.settings.contains_key(key) || defaults.get(key) != Some(value));
    // Without it, the copies are added. With it, they cannot be left out.
    if config.optimizer.state_on_host && measured.settings.contains_key(STATE_ON_HOST) {
        settings.insert(STATE_ON_HOST.to_owned(), true.to_string());
    }
    let warning = measured.fits(path, [&settings, &machine], &model.names(), config.pipeline.shards)?;
    let warning = warning.map(|warning| format!("{}: {warning}", path.display()));
    Ok((measured, warning))
}

/// The measured costs, with this config's schedule, with what it recomputes, and with its replicas on one
/// host.
///
/// # Errors
/// When there is no such schedule, or when its stages recompute differently.
pub fn costs_of(config: &Config, measured: &Measured) -> Result<ModelCosts> {
    Ok(costs_by_any(config, measured)?.under(&unfitted(config)?.in_turn()))
}

/// The same by any schedule of as many ranks.
///
/// # Errors
/// As for [`costs_of`].
pub(super) fn costs_by_any(config: &Config, measured: &Measured) -> Result<ModelCosts> {
    let costs = costs_under_any(config, measured)?;
    on_cluster(config, unfitted(config)?.ranks(), costs, &measured.cluster(1))
}

/// The costs of a shard with the links of a cluster, and with the reductions of this config's replicas. Each
/// replica has `ranks` ranks.
///
/// # Errors
/// When a cost of a link is negative or not a number.
pub fn on_cluster(config: &Config, ranks: u32, costs: ModelCosts, cluster: &Cluster) -> Result<ModelCosts> {
    let (map, replicas, shards) = (config.launch.map, config.pipeline.replicas, config.pipeline.shards);
    let world = [replicas, ranks, shards];
    let reduction = Reduction {
        replicas,
        link: cluster.of_reductions(map, world),
        add: cluster.add,
        sent: config.pipeline.sums.bytes() as f64 / F32,
        sharded: config.divides_updates(),
    };
    let Sizes { units, .. } = sizes(config)?;
    let numbers: Vec<u64> = match trained(config)? {
        Some(units) => units.into_iter().map(|numbers| numbers.trained).collect(),
        None => units.iter().map(|unit| unit.weights).collect(),
    };
    let weights = numbers.into_iter().map(|count| F32 * count as f64 / f64::from(shards)).collect();
    let link = match waits_are_measured(&costs, world, cluster) {
        true => LinkCost::default(),
        false => cluster.of_shards(world),
    };
    let (mut transfers, parts_pipelines) =
        (cluster.of_transfers(map, world), cluster.parts_pipelines(map, world));
    if parts_pipelines && config.pipeline.dtype == DType::F32 {
        transfers.per_byte *= config.pipeline.wires.share();
    }
    let costs = costs
        .sharded(shards, shard_costs(config, &units), link)?
        .linked(transfers)?
        .queued(parts_pipelines, cluster.parts_replicas(map, world))
        .replicated(weights, reduction)?;
    Ok(costs)
}

/// The seconds in which a shard waits for the others, for a micro-batch in all layers.
///
/// # Errors
/// When the sizes of the model are impossible.
pub fn shard_waits(config: &Config, ranks: u32, measured: &ModelCosts, cluster: &Cluster) -> Result<f64> {
    let world = [config.pipeline.replicas, ranks, config.pipeline.shards];
    if waits_are_measured(measured, world, cluster) {
        return Ok(measured.measured_shards().waits);
    }
    let link = cluster.of_shards(world);
    let layers = shard_costs(config, &sizes(config)?.units);
    Ok(layers.iter().flat_map(|layer| layer.messages).map(|messages| messages.time(link)).sum())
}

/// Whether the costs include the waits of a shard: they were measured with as many shards, and these are on
/// one host.
fn waits_are_measured(costs: &ModelCosts, world: [u32; 3], cluster: &Cluster) -> bool {
    let [.., shards] = world;
    costs.measured_shards().count == shards && !cluster.parts_shards(world)
}

/// How often shards give each other something in the loss: the largest scores, and sums over the scores.
const IN_LOSS: f64 = 2.0;

/// What a shard of each layer waits for and keeps, besides its part of the layer.
fn shard_costs(config: &Config, units: &[UnitSizes]) -> Vec<ShardCost> {
    let bytes = config.pipeline.dtype.bytes() as f64;
    let of_unit = |unit: &UnitSizes| ShardCost {
        messages: unit.exchanges.map(|one| messages(config, one)),
        pending: bytes * unit.pending_whole as f64,
    };
    let mut all: Vec<ShardCost> = units.iter().map(of_unit).collect();
    if let Some((last, unit)) = all.last_mut().zip(units.last()) {
        // Deferred scores meet the loss in the backward, in parts.
        let device = match config.pipeline.devices.gpus().first() {
            Some(&gpu) => Device::Cuda(gpu),
            None => Device::Cpu,
        };
        let (pass, parts) = match unit.deferred {
            0 => (0, 1),
            rows => (1, rows.div_ceil(rows_at_once(device))),
        };
        last.messages[pass].count += IN_LOSS * parts as f64 * f64::from(config.pipeline.shards - 1);
    }
    all
}

/// The messages that a shard waits for.
fn messages(config: &Config, exchanges: Exchanges) -> ShardMessages {
    let shards = config.pipeline.shards;
    let count = exchanges.times as f64 * f64::from(shards - 1);
    ShardMessages { count, bytes: exchanges.bytes(shards, config.pipeline.dtype.bytes()) }
}

/// The measured costs, with what this config recomputes and with backwards in two halves.
///
/// # Errors
/// When its stages recompute differently.
pub fn costs_under_any(config: &Config, measured: &Measured) -> Result<ModelCosts> {
    let full = recomputed(config)? == Recompute::Full;
    with_host(config, measured.costs.clone().recomputed(full), measured)
}

/// Refuses a config that cannot be measured, or that measured costs would not fit. Nothing is measured yet.
///
/// # Errors
/// When its stages recompute differently, when only some ranks are on GPUs, when there is no such GPU, or
/// when its schedule cannot be made.
pub fn check_measurable(config: &Config) -> Result<()> {
    recomputed(config)?;
    estimated_counts(config)?;
    measured_places(config)?;
    check_gpus(config)
}

/// Measures the costs. The ranks of the config will be on this number of hosts, each of which has as many as
/// the others; [`at_once`] says how many work at once. `tell` is called after every step with the number of
/// steps done and the largest number there may be.
///
/// # Errors
/// When the data cannot be opened. Also whatever stops a pipeline.
pub fn measure(config: &Config, hosts: u32, tell: impl FnMut(u64, u64)) -> Result<Measured> {
    let at_once = at_once(config, hosts)?;
    let config = &to_measure(config)?;
    let data = data(config)?;
    let place = measured_places(config)?.first().copied();
    // Where a copy cannot be timed now, it counts as one of the usual speed.
    let device = place.unwrap_or_default().device;
    let host = match device {
        Device::Cuda(gpu) => host_speed(gpu).ok().map(|speed| 1.0 / speed),
        Device::Cpu => None,
    };
    let mut settings = settings(config)?;
    if device != Device::Cpu && config.optimizer.state_on_host {
        settings.insert(STATE_ON_HOST.to_owned(), true.to_string());
    }
    Ok(Measured {
        settings,
        machine: machine(config)?,
        costs: profile::measure(|| subject(config, at_once, &data), tell)?,
        between: None,
        add: profile::addition(),
        tokens: data.mixture.as_deref().map(|mixture| tokens(config, mixture)).transpose()?,
        host,
    })
}

/// What is measured. Times do not depend on a reference, so none is found out.
fn subject(config: &Config, ranks: u32, data: &TrainingData) -> Result<Subject<AnyLoss, Box<dyn Optimizer>>> {
    data.assume_no_references();
    Ok(Subject {
        model: model(config)?,
        ranks,
        shards: config.pipeline.shards,
        places: measured_places(config)?,
        micro_batches: config.pipeline.micro_batches,
        loss: loss(config)?,
        work: data.mixture.clone().map(work).transpose()?,
        data: Arc::clone(&data.train),
        optimizer: optimizer(config),
        state_on_host: config.optimizer.state_on_host,
        recompute: recomputed_in_measuring(config)?,
        threads_per_rank: config.pipeline.threads_per_rank,
        pin: config.pipeline.pin,
    })
}

/// How many ranks of a replica are measured at once, if all ranks will be on this number of hosts: as many as
/// a host has, because they share its cores. Also as many as there are GPUs here, which they do not share.
///
/// # Errors
/// When the schedule cannot be made.
pub fn at_once(config: &Config, hosts: u32) -> Result<u32> {
    let ranks = unfitted(config)?.ranks();
    let pipeline = &config.pipeline;
    let of_a_host = ranks.saturating_mul(pipeline.replicas).div_ceil(hosts);
    let gpus = pipeline.devices.gpus().len() as u32;
    Ok(of_a_host.max(gpus).clamp(1, ranks))
}

/// The config with which layers are measured: with all shards of a rank if each has a GPU or a core alone,
/// and with whole layers otherwise.
///
/// # Errors
/// When its schedule cannot be made.
pub fn to_measure(config: &Config) -> Result<Config> {
    let mut config = config.clone();
    let ranks = unfitted(&config)?.ranks() as usize;
    let pipeline = &mut config.pipeline;
    let all = ranks * pipeline.shards as usize;
    let have_their_own = match pipeline.devices.gpus().len() {
        0 => all * pipeline.threads_per_rank <= Cpu::here().threads,
        gpus => all <= gpus,
    };
    if pipeline.shards > 1 && !have_their_own {
        pipeline.shards = 1;
        pipeline.devices = pipeline.devices.shared_by(ranks);
    }
    Ok(config)
}

/// The places of all shards of a replica, which have one kind of device.
pub(super) fn measured_places(config: &Config) -> Result<Vec<Place>> {
    let places = places_of_shards(config, unfitted(config)?.ranks(), config.pipeline.shards)?;
    profile::check_places(&places)
        .map_err(|error| config.refuse("pipeline.devices", ValueProblem::caused(error)))?;
    Ok(places)
}

/// The settings that determine the work of a micro-batch.
pub(super) fn settings(config: &Config) -> Result<Settings> {
    let table = config.kept()?;
    let mut settings = Settings::new();
    let mut add = |section: &str, wanted: &dyn Fn(&str) -> bool| {
        let keys = table.get(section).and_then(Value::as_table).into_iter().flatten();
        for (key, value) in keys.filter(|(key, _)| wanted(key)) {
            settings.insert(format!("{section}.{key}"), value.to_string());
        }
    };
    add("model", &|key| key != "seed");
    add("data", &|key| ["kind", "seq"].contains(&key));
    add("lora", &|key| key != "path");
    // How long documents are says how much of a sequence a token sees.
    let differs = matches!(config.packing(), Some(Packing::Single | Packing::Apart(_)));
    add("data", &|key| differs && ["packing", "longer"].contains(&key));
    add("train", &|key| key == "objective");
    add("optimizer", &|key| ["kind", "state", "groups"].contains(&key));
    if !config.data.sources.is_empty() {
        // How long sequences are depends on which sources they come from, and on how these are packed.
        let each = config.data.sources.iter().map(|source| {
            let share = source.share.unwrap_or(1.0);
            format!("{share} {}", config.packing_of(source).map_or("at random places", PackingBy::name))
        });
        settings.insert("data.sources".to_owned(), each.collect::<Vec<_>>().join(", "));
    }
    let rows = config.micro_batch_size().to_string();
    settings.insert("pipeline.micro_batch_size".to_owned(), rows);
    let word = match recomputed_in_measuring(config)? {
        Recompute::None => "none",
        Recompute::Selective => "selective",
        Recompute::Cheap | Recompute::Full => "cheap or full",
    };
    settings.insert("pipeline.recompute".to_owned(), word.to_owned());
    let place = measured_places(config)?.first().copied().unwrap_or_default();
    let devices = match place.device {
        Device::Cpu if place.dtype == DType::F32 => profile::ON_CPU.to_owned(),
        Device::Cpu => format!("{} in {}", profile::ON_CPU, place.dtype),
        Device::Cuda(_) => format!("GPUs in {}", place.dtype),
    };
    settings.insert(profile::DEVICES.to_owned(), devices);
    Ok(settings)
}

/// The settings that determine the speed of a micro-batch.
fn machine(config: &Config) -> Result<Settings> {
    let mut machine = profile::machine();
    let ranks = unfitted(config)?.ranks();
    machine.insert("ranks".to_owned(), ranks.to_string());
    let threads = config.pipeline.threads_per_rank;
    // Files from before ranks had several threads lack this line.
    if threads > 1 {
        machine.insert("threads_per_rank".to_owned(), threads.to_string());
    }
    let gpus = config.pipeline.devices.gpus().len();
    if gpus > 0 {
        machine.insert("gpus".to_owned(), gpus.to_string());
        machine.insert("gpu".to_owned(), kinds_of_gpus(config).join(", "));
    }
    Ok(machine)
}

/// What stages recompute where they are measured or predicted. What [`Recompute::Full`] takes follows from
/// the costs of [`Recompute::Cheap`].
///
/// # Errors
/// As for [`recomputed`].
pub(super) fn recomputed_in_measuring(config: &Config) -> Result<Recompute> {
    recomputed(config).map(|how| if how == Recompute::Full { Recompute::Cheap } else { how })
}

/// What every stage recomputes.
///
/// # Errors
/// When its stages recompute differently.
pub(super) fn recomputed(config: &Config) -> Result<Recompute> {
    match &config.pipeline.recompute {
        RecomputeBy::All(word) => Ok(*word),
        RecomputeBy::Each(words) => match words.as_slice() {
            [] => Ok(Recompute::default()),
            [first, rest @ ..] if rest.iter().all(|word| word == first) => Ok(*first),
            _ => Err(config.refuse(
                "pipeline.recompute",
                "costs are for stages that all recompute the same: give one word for all",
            )),
        },
    }
}
