//! Where ranks run, and with which numbers.

use pipewright::stages::devices::{FUSED_HEADS, bf16_products, name_and_memory};
use pipewright::stages::models::Part;
use pipewright::stages::{DType, Device, Place};

use crate::config::{Config, Memory, Model};
use crate::error::Result;
use crate::error::ValueProblem;
use pipewright::id::{Rank, WorldRank};
use pipewright::mesh::{Coordinate, Mesh};

/// How many `bf16` numbers a GPU reads at once: 16 bytes.
const LOAD: usize = 8;

/// The place of the first shard of each rank of the first replica, which has `ranks` ranks.
///
/// # Errors
/// When there are several devices, but not as many as ranks of a replica or as ranks in all.
pub fn places(config: &Config, ranks: u32) -> Result<Vec<Place>> {
    places_of_shards(config, ranks, 1)
}

/// The places of the first `shards` shards of each rank of the first replica, which has `ranks` ranks.
///
/// # Errors
/// As for [`places`].
pub(super) fn places_of_shards(config: &Config, ranks: u32, shards: u32) -> Result<Vec<Place>> {
    if ranks == 0 {
        return Ok(Vec::new());
    }
    let all = places_of_all(config, ranks)?;
    let mesh = Mesh::new([config.pipeline.replicas, ranks, config.pipeline.shards], 1, &[])?
        .mapped(config.launch.map);
    let of_rank = |rank| (0..shards).map(move |shard| Coordinate { replica: 0, rank: Rank(rank), shard });
    let first = (0..ranks).flat_map(of_rank);
    Ok(first.map(|at| all[mesh.world_rank(at).index()]).collect())
}

/// The place of each rank of the run, in the order of their numbers, if a replica has `ranks` ranks. A list
/// with a device for each rank of a replica holds for all replicas.
///
/// # Errors
/// As for [`places`].
pub fn places_of_all(config: &Config, ranks: u32) -> Result<Vec<Place>> {
    let (devices, replicas) = (&config.pipeline.devices.0, config.pipeline.replicas);
    let mesh = Mesh::new([replicas, ranks, config.pipeline.shards], 1, &[])?.mapped(config.launch.map);
    let (count, ranks) = (devices.len(), ranks as usize);
    let fits = [1, ranks, mesh.world_size() as usize].contains(&count);
    config.require(fits, "pipeline.devices", || {
        let there = match replicas {
            1 => format!("{ranks} ranks"),
            _ => format!("{replicas} replicas of {ranks} ranks"),
        };
        format!("the list has {count}, and there are {there}: give one device for all, or one for each")
    })?;
    let device = |rank: WorldRank| match count {
        1 => devices[0],
        count if count == ranks => devices[mesh.coordinate(rank).rank.index()],
        _ => devices[rank.index()],
    };
    let dtype = config.pipeline.dtype;
    let place = |device: Device| Place { device, dtype };
    Ok(mesh.world().map(device).map(place).collect())
}

/// The text about devices when a run begins: which devices, with which numbers, how the CPU multiplies them,
/// and which parts of the model are slow on GPUs. `None` if all ranks are on the CPU in `f32`.
pub fn describe_devices(config: &Config) -> Option<String> {
    let (devices, dtype) = (&config.pipeline.devices, config.pipeline.dtype);
    if !devices.has_gpu() && dtype == DType::F32 {
        return None;
    }
    let names: Vec<String> = devices.clone().into();
    let mut text = format!("{} in {dtype}", names.join(", "));
    if dtype == DType::Bf16 && devices.0.contains(&Device::Cpu) {
        text += &format!("; products on the CPU {}", bf16_products());
    }
    if dtype == DType::Bf16 && devices.has_gpu() && config.model.kind.takes_tokens() {
        text += &slow_heads(&config.model);
        if !devices.0.contains(&Device::Cpu) {
            text += &slow_vocabulary(config);
        }
    }
    Some(text)
}

/// The names of the ranks' GPUs, each kind once. A GPU that this machine does not have is "not here".
pub fn kinds_of_gpus(config: &Config) -> Vec<String> {
    let mut kinds = Vec::new();
    for index in config.pipeline.devices.gpus() {
        let name = name_and_memory(index).map_or_else(|_| "not here".to_owned(), |(name, _)| name);
        if !kinds.contains(&name) {
            kinds.push(name);
        }
    }
    kinds
}

/// The memory of a GPU divided by the number of ranks on it, of all replicas, for the rank that has least.
/// `None` if ranks are on the CPU.
///
/// # Errors
/// When a GPU is missing, or as [`places`].
pub fn gpu_memory(config: &Config, ranks: u32) -> Result<Option<Memory>> {
    let places = places_of_all(config, ranks)?;
    let mut all = Vec::new();
    for index in config.pipeline.devices.gpus() {
        let here = places.iter().filter(|place| place.device == Device::Cuda(index));
        all.push(name_and_memory(index)?.1 / here.count().max(1) as u64);
    }
    Ok(all.into_iter().min().map(Memory::of))
}

/// Refuses GPUs that this machine does not have.
pub(super) fn check_gpus(config: &Config) -> Result<()> {
    for index in config.pipeline.devices.gpus() {
        name_and_memory(index).map_err(|error| config.refuse("pipeline.devices", no_gpu(error)))?;
    }
    Ok(())
}

fn no_gpu(error: pipewright::stages::Error) -> ValueProblem {
    let text = format!(
        "the costs of layers are measured where they run, and {error}. Plan by the published figures of a \
         kind of GPU (--device), with a file that was measured there (--costs), or, with the costs on the \
         CPU, with --set pipeline.devices=cpu"
    );
    ValueProblem::because(text, error)
}

/// A warning, if a GPT's heads have no fast kernels with `bf16`.
fn slow_heads(model: &Model) -> String {
    let width = model.head_width.unwrap_or(model.dim / model.heads.max(1));
    if FUSED_HEADS.contains(&width) {
        return String::new();
    }
    let fused = fused_heads();
    format!(
        "; heads of width {width} take the plain attention kernels, which are slow: there are fused ones for \
         {fused}"
    )
}

/// The widths of heads that have fused attention, as a list.
pub(super) fn fused_heads() -> String {
    FUSED_HEADS.map(|width| width.to_string()).join(", ")
}

/// A warning, if a GPT's scores cannot be read fast with `bf16`. Where they come some rows at a time, the
/// rows have room.
fn slow_vocabulary(config: &Config) -> String {
    if config.gives_rewards() {
        return String::new();
    }
    let model = &config.model;
    let rows = config.micro_batch_size() * config.data.seq;
    let is_deferred = Part::Scores([model.dim, model.vocab], model.tied).is_deferred(rows);
    if model.vocab.is_multiple_of(LOAD) || (is_deferred && config.shard_groups() == 1) {
        return String::new();
    }
    let (vocab, next) = (model.vocab, model.vocab.next_multiple_of(64));
    format!(
        "; a vocabulary of {vocab} is slow, because scores are read {LOAD} at a time: \
         model.vocab={next} is faster"
    )
}
