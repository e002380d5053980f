//! Whether the machine has the memory that a config's training needs.

use std::collections::{BTreeSet, HashMap};

use pipewright::Cut;
use pipewright::stages::Device;
use pipewright::stages::devices::{free_memory, name_and_memory};
use pipewright::stages::optimizer::PASSAGE;
use pipewright::stages::units::in_words;

use super::costs::{measured_places, recomputed_in_measuring, to_measure};
use super::model::model;
use super::schedule::unfitted;
use super::{PipelinePlan, changed, memory, places_of_all};
use crate::config::{Config, Memory, RecomputeBy, environment};
use crate::error::{ConfigError, ValueProblem};
use crate::error::{Error, Result};
use crate::profile::MemoryLimit;
use pipewright::fabric::Crew;
use pipewright::id::{Rank, WorldRank};
use pipewright::mesh::Mesh;
use pipewright::plan::{RankMemory, Replicas};
use pipewright::schedule::Schedule;

/// The variable that says how much memory the run may take on this machine's CPU.
const ALLOWED: &str = "PIPEWRIGHT_MEMORY";

/// The variable by which each process may see other GPUs under the same number.
const OWN_GPUS: &str = "CUDA_VISIBLE_DEVICES";

/// The ranks whose memory counts together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RanksHere {
    /// The ranks of this process.
    pub of_process: Vec<WorldRank>,
    /// The ranks of all processes on this machine.
    pub of_machine: Vec<WorldRank>,
    /// How many processes of the run are on this machine.
    pub processes: usize,
}

impl RanksHere {
    /// All of this many replicas, ranks of a replica, and shards of a rank, in one process.
    pub fn all([replicas, ranks, shards]: [u32; 3]) -> Self {
        let all: Vec<WorldRank> = (0..replicas * ranks * shards).map(WorldRank).collect();
        Self { of_process: all.clone(), of_machine: all, processes: 1 }
    }

    /// The ranks of a process among several, or all ranks if there is only one process.
    ///
    /// # Errors
    /// When the processes cannot have equally many ranks.
    pub fn of(crew: Option<&Crew>, sizes: [u32; 3]) -> Result<Self> {
        let Some(crew) = crew else {
            return Ok(Self::all(sizes));
        };
        let mesh = match crew.processes == crew.whole {
            true => Mesh::new(sizes, crew.processes, &[])?,
            false => Mesh::uneven(sizes, crew.processes, &[])?,
        };
        let of_machine = crew.local.iter();
        Ok(Self {
            of_process: mesh.ranks_of(crew.process).collect(),
            of_machine: of_machine.flat_map(|&process| mesh.ranks_of(process)).collect(),
            processes: crew.local.len(),
        })
    }

    /// Those that share a limit, and how many processes these are of.
    fn sharing(&self, limit: &MemoryLimit) -> (&[WorldRank], usize) {
        match limit.shared {
            true => (&self.of_machine, self.processes),
            false => (&self.of_process, 1),
        }
    }
}

/// What a process may hold later, by what was free before it held anything.
#[derive(Debug)]
pub struct Room {
    config: Config,
    plan: PipelinePlan,
    limits: Vec<(Device, MemoryLimit)>,
}

impl Room {
    /// The room of a process that holds nothing yet.
    ///
    /// # Errors
    /// As for [`memory_limits`].
    pub fn new(config: &Config, plan: &PipelinePlan) -> Result<Self> {
        Ok(Self { config: config.clone(), plan: plan.clone(), limits: memory_limits(config)? })
    }

    /// Refuses the ranks that this process has among the `crew`, if they do not fit. `cut`: if it is not the
    /// planned one.
    ///
    /// # Errors
    /// As for [`memory`], [`check_memory`] and [`RanksHere::of`].
    pub fn check(&self, crew: Option<&Crew>, cut: Option<&Cut>) -> Result<()> {
        let (config, plan) = match cut {
            Some(cut) => changed(&self.config, &self.plan, cut)?,
            None => (self.config.clone(), self.plan.clone()),
        };
        let sizes = [config.pipeline.replicas, plan.replicas.ranks(), config.pipeline.shards];
        let here = RanksHere::of(crew, sizes)?;
        check_memory(&config, &memory(&config, &plan)?, &here, &self.limits)
    }
}

/// The memory limits of the CPU and of the GPUs of a config, as they are now. On the CPU, what the variable
/// `PIPEWRIGHT_MEMORY` allows comes before what the system tells. A GPU that is missing has no limit: it is
/// refused elsewhere.
///
/// # Errors
/// When the variable is no size.
pub fn memory_limits(config: &Config) -> Result<Vec<(Device, MemoryLimit)>> {
    let environment = environment();
    let value = |name| environment.iter().find(|(variable, _)| variable == name);
    let cpu = match value(ALLOWED) {
        Some((_, text)) => vec![allowed(text)?],
        None => MemoryLimit::here(),
    };
    let own_gpus = value(OWN_GPUS).is_some();
    let gpus = config.pipeline.devices.gpus().into_iter();
    let gpus = gpus.filter_map(|index| Some((Device::Cuda(index), of_gpu(index, own_gpus)?)));
    let cpu = cpu.into_iter().map(|limit| (Device::Cpu, limit));
    Ok(cpu.chain(gpus).collect())
}

fn allowed(text: &str) -> Result<MemoryLimit> {
    let allowed: Memory = text
        .parse()
        .map_err(|problem: String| ConfigError::Other(format!("PIPEWRIGHT_MEMORY is `{text}`: {problem}")))?;
    Ok(MemoryLimit {
        bytes: allowed.bytes() as u64,
        free: allowed.bytes() as u64,
        set_by: format!("{ALLOWED} allows"),
        shared: true,
    })
}

fn of_gpu(index: u32, own_gpus: bool) -> Option<MemoryLimit> {
    let (name, bytes) = name_and_memory(index).ok()?;
    Some(MemoryLimit {
        bytes,
        free: free_memory(index).unwrap_or(bytes),
        set_by: format!("{} ({name}) has", Device::Cuda(index)),
        shared: !own_gpus,
    })
}

/// Refuses training for which a device has too little free memory, by the estimate of [`memory`]. A device
/// has to hold its own ranks, of whichever replica.
///
/// # Errors
/// The error names the key to change. As for [`places_of_all`] too.
pub fn check_memory(
    config: &Config,
    ranks: &[RankMemory],
    here: &RanksHere,
    limits: &[(Device, MemoryLimit)],
) -> Result<()> {
    let count = ranks.len() as u32;
    let places = places_of_all(config, count)?;
    let mesh = Mesh::new([config.pipeline.replicas, count, config.pipeline.shards], 1, &[])?
        .mapped(config.launch.map);
    let by_device = |world: &[WorldRank]| {
        let mut devices: HashMap<Device, Vec<Rank>> = HashMap::new();
        for &rank in world {
            let of_device = devices.entry(places[rank.index()].device).or_default();
            of_device.push(mesh.coordinate(rank).rank);
        }
        devices
    };
    let [of_machine, of_process] = [&here.of_machine, &here.of_process].map(|world| by_device(world));
    for (device, limit) in limits {
        let (sharers, processes) = here.sharing(limit);
        let of_device = if limit.shared { &of_machine } else { &of_process };
        let of_device = of_device.get(device).map_or(&[][..], Vec::as_slice);
        let distinct: BTreeSet<_> = of_device.iter().map(|rank| rank.index()).collect();
        let needed = RankMemory {
            // One replica has them.
            copies: distinct.into_iter().map(|rank| ranks[rank].copies).sum(),
            ..sum(of_device.iter().map(|rank| &ranks[rank.index()]))
        };
        // The host's memory has a part of what ranks on GPUs need.
        let on_host = |part: fn(&RankMemory) -> f64| match device {
            Device::Cpu => sharers.iter().map(|&rank| part(&ranks[mesh.coordinate(rank).rank.index()])).sum(),
            Device::Cuda(_) => 0.0,
        };
        let needed = RankMemory {
            offloaded: on_host(|rank| rank.offloaded),
            snapshots: on_host(|rank| rank.snapshots),
            state_on_host: on_host(|rank| rank.state_on_host),
            ..needed
        };
        if needed.total() + needed.on_host() > limit.free as f64 {
            let passages = PASSAGE as f64 * of_device.len() as f64;
            let may_leave = match device {
                Device::Cpu => 0.0,
                Device::Cuda(_) => needed.optimizer - passages,
            };
            return Err(too_much(config, needed, may_leave, processes, limit));
        }
    }
    Ok(())
}

/// Refuses to measure if this machine or a GPU has too little memory for it.
///
/// # Errors
/// As for [`check_memory`]. Also when the model has fewer layers than ranks.
pub fn check_memory_to_measure(config: &Config, limits: &[(Device, MemoryLimit)]) -> Result<()> {
    let mut config = to_measure(config)?;
    config.pipeline.recompute = RecomputeBy::All(recomputed_in_measuring(&config)?);
    config.checkpoint.beside = false;
    let mut devices = measured_places(&config)?;
    let shards = config.pipeline.shards;
    (config.pipeline.replicas, config.pipeline.gradient_groups) = (1, None);
    let units = model(&config)?;
    let ranks = unfitted(&config)?.ranks().min(units.names().len() as u32);
    let schedule = Schedule::named("zb-h1", ranks, config.pipeline.micro_batches)?;
    devices.truncate((ranks * shards) as usize);
    config.pipeline.devices.0 = devices.iter().map(|place| place.device).collect();
    let plan = PipelinePlan::of(units.balanced(ranks)?, Replicas::one(schedule.in_turn()));
    let held = memory(&config, &plan)?;
    check_memory(&config, &held, &RanksHere::all([1, ranks, shards]), limits)
}

fn sum<'a>(ranks: impl Iterator<Item = &'a RankMemory>) -> RankMemory {
    ranks.fold(RankMemory::default(), |sum, rank| RankMemory {
        weights: sum.weights + rank.weights,
        gradients: sum.gradients + rank.gradients,
        waiting: sum.waiting + rank.waiting,
        optimizer: sum.optimizer + rank.optimizer,
        copies: sum.copies + rank.copies,
        activations: sum.activations + rank.activations,
        buffers: sum.buffers + rank.buffers,
        offloaded: sum.offloaded + rank.offloaded,
        snapshots: sum.snapshots + rank.snapshots,
        state_on_host: sum.state_on_host + rank.state_on_host,
    })
}

/// `may_leave`: the bytes of a GPU that are free if the optimizer's state is on the host.
fn too_much(
    config: &Config,
    needed: RankMemory,
    may_leave: f64,
    processes: usize,
    limit: &MemoryLimit,
) -> Error {
    let of_batch = needed.activations + needed.buffers + needed.offloaded + needed.snapshots;
    let of_model = needed.weights + needed.gradients + needed.optimizer + needed.state_on_host;
    let all = needed.total() + needed.on_host();
    let fits_without = |part: f64| part > 0.0 && all - part <= limit.free as f64;
    let (key, advice) = match (of_batch > of_model, config.max_staleness()) {
        _ if fits_without(needed.offloaded) => {
            ("pipeline.offload", "lower it, or remove it: then activations stay on the GPUs")
        }
        _ if fits_without(may_leave) => (
            "optimizer.state_on_host",
            "set it to true: then the state of the optimizer is on the host, and each update brings it to \
             the GPU part by part",
        ),
        _ if fits_without(needed.snapshots) => (
            "train.restarts",
            "set it to 0: then nothing is kept from which a rank could be built again, and no lost process \
             is replaced",
        ),
        _ if fits_without(needed.offloaded + needed.snapshots) => (
            "pipeline.offload",
            "lower it, or remove it: then activations stay on the GPUs; and set train.restarts to 0: then no \
             snapshots are kept",
        ),
        _ if fits_without(needed.state_on_host) => {
            ("optimizer.state_on_host", "set it to false: then the state of the optimizer stays on the GPUs")
        }
        _ if fits_without(needed.copies) => (
            "checkpoint.beside",
            "set it to false: then nothing is copied, and steps wait until a checkpoint is written",
        ),
        _ if config.is_private() && needed.waiting > needed.weights => (
            "pipeline.micro_batches",
            "lower it, since the gradient of each micro-batch is kept until the end of a step \
             (privacy.clip); or train fewer parameters, as adapters (lora.rank), or spread replicas over \
             more machines",
        ),
        _ if fits_without(needed.waiting) => (
            "pipeline.gradient_groups",
            "set it to the number of replicas: then no sum of gradients waits for another, and sums are \
             added in another order",
        ),
        (true, _) => (
            config.rows_key(),
            "lower it, recompute (pipeline.recompute), or spread the model over more machines or GPUs",
        ),
        (false, 0) if needed.waiting > 0.0 => (
            "model",
            "make the model narrower or shallower, spread it over more machines or GPUs, or set \
             pipeline.gradient_groups to the number of replicas, so that no sum of gradients waits",
        ),
        (false, 0) => {
            ("model", "make the model narrower or shallower, or spread it over more machines or GPUs")
        }
        (false, _) => (
            "pipeline.max_staleness",
            "lower it, because a rank holds gradients of so many steps; or make the model narrower or \
             shallower, or spread it over more machines or GPUs",
        ),
    };
    let [free, most] = [limit.free, limit.bytes].map(|bytes| in_words(bytes as f64));
    let mut text = format!("training needs about {} of memory", in_words(all));
    if processes > 1 {
        text += &format!(" in the {processes} processes of this machine");
    }
    text += &format!(", and {} {most}", limit.set_by);
    if free != most {
        text += &format!(", of which {free} is free");
    }
    text += &format!(
        ": {} for weights, gradients and the optimizer, {} for activations and buffers",
        in_words(of_model),
        in_words(of_batch)
    );
    if needed.copies > 0.0 {
        text += &format!(", {} for copies from which checkpoints are written", in_words(needed.copies));
    }
    let problem = ValueProblem::TooMuchMemory(format!("{text}; {advice}"));
    config.refuse(key, problem)
}
