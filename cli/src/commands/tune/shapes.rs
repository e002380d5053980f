//! Which numbers of replicas, ranks and shards are tried.

use super::search::CostsOf;
use super::variant::with_shards;
use crate::commands::saved::too_many_ranks;
use crate::compose;
use crate::config::{Config, Memory};
use crate::error::{Error, Result};
use pipewright::stages::Device;

/// All numbers of replicas, of ranks of each and of shards of each rank that use all of these devices, with
/// these numbers of shards.
pub(super) fn of_devices(devices: u32, shards: &[u32], config: &Config) -> Result<Vec<[u32; 3]>> {
    let layers = layers(config)?;
    let mut shapes = Vec::new();
    for shards in numbers_of_shards(shards, config)? {
        if !devices.is_multiple_of(shards) {
            continue;
        }
        let devices = devices / shards;
        let ranks = (1..=devices.min(layers)).filter(|&ranks| devices.is_multiple_of(ranks));
        shapes.extend(ranks.map(|ranks| [devices / ranks, ranks, shards]));
    }
    match shapes.is_empty() {
        false => Ok(shapes),
        true => Err(Error::refused(format!(
            "--shards: no given number divides {devices} devices: give one that does, such as 1"
        ))),
    }
}

/// As [`of_devices`]: these numbers of replicas, each with these numbers of ranks and shards. If none are
/// given, the config's numbers, and what the machine has.
pub(super) fn of(replicas: &[u32], ranks: &[u32], shards: &[u32], config: &Config) -> Result<Vec<[u32; 3]>> {
    let mut replicas = replicas.to_vec();
    if replicas.is_empty() {
        replicas.push(config.pipeline.replicas);
    }
    replicas.sort_unstable();
    replicas.dedup();
    let are_given = !ranks.is_empty();
    let (ranks, shards) = (of_pipeline(ranks, config)?, numbers_of_shards(shards, config)?);
    let mut shapes = Vec::new();
    for &replicas in &replicas {
        for &ranks in &ranks {
            shapes.extend(shards.iter().map(|&shards| [replicas, ranks, shards]));
        }
    }
    // Each shard of each rank has a device.
    let most = u64::from(devices_here(config));
    let is_here = |sizes: &[u32; 3]| sizes.iter().map(|&size| u64::from(size)).product::<u64>() <= most;
    shapes.retain(|sizes| are_given || sizes[1] == 1 || is_here(sizes));
    Ok(shapes)
}

/// The numbers of shards to try. Refuses those that the config's training cannot have.
fn numbers_of_shards(given: &[u32], config: &Config) -> Result<Vec<u32>> {
    let mut all = given.to_vec();
    if all.is_empty() {
        all.push(config.pipeline.shards);
    }
    all.sort_unstable();
    all.dedup();
    for &shards in &all {
        let config = with_shards(config, shards);
        config.check()?;
        compose::check_divided(&config)?;
    }
    Ok(all)
}

/// How many cores this machine has.
pub(super) fn cores() -> u32 {
    std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32)
}

/// How many GPUs the config has, or for how many ranks the machine has cores.
fn devices_here(config: &Config) -> u32 {
    match config.pipeline.devices.gpus().len() {
        0 => (cores() / config.pipeline.threads_per_rank as u32).max(1),
        gpus => gpus as u32,
    }
}

/// The numbers of ranks to try.
fn of_pipeline(given: &[u32], config: &Config) -> Result<Vec<u32>> {
    if given.contains(&0) {
        return Err(Error::refused("--ranks: 0 ranks cannot train: give numbers from 1 on"));
    }
    let layers = layers(config)?;
    let mut ranks = given.to_vec();
    if ranks.is_empty() {
        let most = devices_here(config);
        ranks = (0..32).map(|power| 1 << power).take_while(|ranks| *ranks < most).collect();
        ranks.push(most);
    }
    ranks.sort_unstable();
    ranks.dedup();
    ranks.retain(|ranks| *ranks <= layers);
    if ranks.is_empty() {
        return Err(too_many_ranks(layers));
    }
    Ok(ranks)
}

/// What to do where no schedule works with the numbers of replicas and ranks.
pub(super) fn others(config: &Config, costs: &CostsOf) -> Result<String> {
    Ok(format!(
        "no schedule works with these numbers: take at most {} ranks, one for each layer, and at most {} \
         replicas, one for each micro-batch",
        layers(config)?,
        most_micro_batches(config, costs)
    ))
}

/// The most micro-batches that are tried: each row or pair of a batch alone, or what the costs are of.
pub(super) fn most_micro_batches(config: &Config, costs: &CostsOf) -> usize {
    let micro_batches = config.pipeline.micro_batches as usize;
    match costs {
        CostsOf::File(_) => micro_batches,
        CostsOf::Measured | CostsOf::Figures(_) => {
            config.micro_batch_size() * micro_batches / config.rows_together()
        }
    }
}

/// Whether this many CPUs, each with this memory, have more memory together than this machine. Says so, if
/// they do.
pub(super) fn are_beyond(devices: u32, device_memory: Option<Memory>, config: &Config) -> Result<bool> {
    let (Some(each), []) = (device_memory, &config.pipeline.devices.gpus()[..]) else {
        return Ok(false);
    };
    let limits = compose::memory_limits(config)?;
    let here = limits.iter().filter(|(device, _)| *device == Device::Cpu);
    let here = here.map(|(_, limit)| limit.bytes).min();
    let is_beyond = here.is_some_and(|here| each.bytes() * f64::from(devices) > here as f64);
    if is_beyond {
        eprintln!(
            "{devices} devices with {each} each have more memory than this machine: the costs of layers are \
             measured here, and no setting is run"
        );
    }
    Ok(is_beyond)
}

/// How many layers the model has.
pub(super) fn layers(config: &Config) -> Result<u32> {
    Ok(compose::model(config)?.names().len() as u32)
}
