//! Starting a pipeline: links, actors, stages, ties, and the check that shapes fit.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use pipewright_stages::loss::Loss;
use pipewright_stages::{Device, Shape, Stage};
use sha2::{Digest, Sha256};

use super::builder::missing;
use super::links::{between_gpus, room};
use super::{Pipeline, PipelineBuilder};
use crate::actor::{Build, CheckLoss, OutputShape, Ranks, Tied};
use crate::data::{DataSource, Loader};
use crate::error::{Error, Result};
use crate::fabric::{self, End, GpuPairs, Peers, Transport, WireFrame, described};
use crate::id::{MicroBatch, StageId};
use crate::mesh::Mesh;
use crate::schedule::Schedule;
use crate::worker::{ParameterInfo, Tie, WorkerParts};

pub(super) fn launch<S: Stage>(mut builder: PipelineBuilder<S>) -> Result<Pipeline<S>> {
    let world = builder.world.take();
    let processes = world
        .as_ref()
        .map(|(world, _)| [world.processes(), world.process()]);
    let mut whole = match Whole::of(&mut builder, processes) {
        Ok(whole) => whole,
        Err(error) => {
            if let Some((world, _)) = world {
                world.fail(&error);
            }
            return Err(error);
        }
    };
    let threads = builder.threads_per_rank.saturating_mul(whole.own.len());
    let (before, beside) = world
        .as_ref()
        .map_or((0, 1), |(world, _)| (world.local_rank(), world.local_size()));
    let all = threads.saturating_mul(beside);
    let room = room(&whole.schedule);
    let (ends, peers) = match world {
        Some((world, connect)) => connect(world, &whole.mesh, all, room, std::mem::take(&mut whole.gpus))?,
        None => (fabric::connect(whole.mesh.world_size(), all, room), Peers::none()),
    };
    let cores = cores(builder.pin, all).into_iter().skip(before * threads);
    let ranks = Ranks::start(whole.own.clone(), peers)?;
    let (schedule, data) = (Arc::clone(&whole.schedule), Arc::clone(&whole.data));
    let started = start(&mut builder, whole, &ranks, ends, cores);
    let (loader, parameters) = started.inspect_err(|error| ranks.peers().fail(error))?;
    Ok(Pipeline {
        ranks,
        loader,
        data,
        schedule,
        optimizer: builder.optimizer,
        learning_rate: builder.learning_rate,
        config: builder.config,
        parameters,
        origin: Instant::now(),
        next_step: 0,
        failure: None,
    })
}

/// What a pipeline cannot do without.
struct Whole<W> {
    schedule: Arc<Schedule>,
    data: Arc<dyn DataSource>,
    loss: Box<dyn Loss<W>>,
    /// Where every rank stands.
    mesh: Mesh,
    /// This process's ranks.
    own: Range<u32>,
    /// The GPUs of different processes between which the schedule sends.
    gpus: GpuPairs,
}

impl<W> Whole<W> {
    fn of<S: Stage<Wire = W>>(builder: &mut PipelineBuilder<S>, processes: Option<[u32; 2]>) -> Result<Self> {
        let schedule = builder.schedule.take().ok_or_else(|| missing("schedule"))?;
        let data = builder.data.take().ok_or_else(|| missing("data"))?;
        let loss = builder.loss.take().ok_or_else(|| missing("loss"))?;
        let schedule = Arc::new(schedule.in_turn());
        check_threads(builder.threads_per_rank)?;
        check_directions(&schedule)?;
        check_count(&schedule, builder.stages.len())?;
        let [processes, process] = processes.unwrap_or([1, 0]);
        let mesh = Mesh::new([1, schedule.ranks(), 1], processes, &builder.places)?;
        let own = mesh.ranks_of(process);
        let gpus = between_gpus(&schedule, &mesh)?;
        Ok(Self {
            schedule,
            data,
            loss,
            mesh,
            own,
            gpus,
        })
    }
}

/// Builds the stages on their ranks, ties what is tied and checks that all fits together.
fn start<S: Stage>(
    builder: &mut PipelineBuilder<S>,
    whole: Whole<S::Wire>,
    ranks: &Ranks<S>,
    ends: Vec<End<S::Wire>>,
    mut cores: impl Iterator<Item = core_affinity::CoreId>,
) -> Result<(Option<Loader>, Vec<ParameterInfo>)> {
    let schedule = Arc::clone(&whole.schedule);
    let data = Arc::clone(&whole.data);
    let threads = builder.threads_per_rank;
    let (loader, parts) = worker_parts(builder, whole, ends)?;
    let mut parts = parts.into_iter();
    let built = ranks.ask_all("building the stages", |_| {
        let parts = parts.next().expect("one for each rank");
        // On a GPU it would pin the threads that CUDA and NCCL start, too.
        let pinned = match parts.mesh.place(parts.transport.rank()).device {
            Device::Cpu => threads,
            Device::Cuda(_) => 0,
        };
        Build {
            cores: cores.by_ref().take(pinned).collect(),
            parts,
            threads,
        }
    })?;
    let mut parameters: Vec<ParameterInfo> = built.into_iter().flatten().collect();
    parameters.sort_by_key(|info| (info.site.stage, info.site.index));
    let ties = ties(&parameters)?;
    ranks.ask_all("connecting the ranks", |_| Tied { ties: ties.clone() })?;
    check_shapes(ranks, &schedule, data.shapes())?;
    if ranks.peers().processes() > 1 {
        check_data(ranks, loader.is_some().then_some(data.as_ref()))?;
    }
    Ok((loader, parameters))
}

/// What each of this process's ranks makes its worker of, and what loads the data when one of them takes any.
fn worker_parts<S: Stage>(
    builder: &mut PipelineBuilder<S>,
    whole: Whole<S::Wire>,
    ends: Vec<End<S::Wire>>,
) -> Result<(Option<Loader>, Vec<WorkerParts<S>>)> {
    let (schedule, own, mesh) = (whole.schedule, whole.own, whole.mesh);
    let worker = |transport: End<S::Wire>| WorkerParts {
        rank: mesh.coordinate(transport.rank()).rank,
        schedule: Arc::clone(&schedule),
        transport: Box::new(transport) as _,
        stages: Vec::new(),
        loss: None,
        inputs: None,
        targets: None,
        mesh: mesh.clone(),
        optimizer: Arc::clone(&builder.optimizer),
        clip: builder.clip,
    };
    let mut parts: Vec<_> = ends.into_iter().map(worker).collect();
    let place = |stage| {
        let rank = schedule.rank_of(stage).0;
        own.contains(&rank).then(|| (rank - own.start) as usize)
    };
    for (stage, build) in (0..).map(StageId).zip(std::mem::take(&mut builder.stages)) {
        if let Some(place) = place(stage) {
            parts[place].stages.push((stage, build));
        }
    }
    let (first, last) = (place(StageId(0)), place(schedule.last_stage()));
    if first.or(last).is_none() {
        return Ok((None, parts));
    }
    let (loader, inputs, targets) = Loader::start(whole.data, schedule.micro_batches())?;
    if let Some(first) = first {
        parts[first].inputs = Some(inputs);
    }
    if let Some(last) = last {
        parts[last].targets = Some(targets);
        parts[last].loss = Some(whole.loss);
    }
    Ok((Some(loader), parts))
}

fn check_threads(threads: usize) -> Result<()> {
    match threads {
        0 => Err(Error::Invalid(
            "0 threads a rank cannot train: give `threads_per_rank` 1 or more".to_owned(),
        )),
        _ => Ok(()),
    }
}

fn check_directions(schedule: &Schedule) -> Result<()> {
    match schedule.placement().directions() {
        1 => Ok(()),
        directions => Err(Error::Invalid(format!(
            "schedule {} goes in {directions} directions (placement {}); the engine trains schedules of one direction: \
             dualpipe-v is the schedule of this kind for that",
            schedule.name(),
            schedule.placement()
        ))),
    }
}

fn check_count(schedule: &Schedule, stages: usize) -> Result<()> {
    if schedule.stages() as usize == stages {
        return Ok(());
    }
    Err(Error::Invalid(format!(
        "the schedule has {} stages, the pipeline was given {stages}: split the model into as many as the schedule has",
        schedule.stages()
    )))
}

/// A core for each thread, when there are enough for each to have its own and more than one thread to keep apart.
pub(crate) fn cores(pin: bool, threads: usize) -> Vec<core_affinity::CoreId> {
    let cores = core_affinity::get_core_ids().unwrap_or_default();
    if pin && threads > 1 && cores.len() >= threads {
        cores
    } else {
        Vec::new()
    }
}

/// The parameters that share a name. `parameters` are in layer order.
fn ties(parameters: &[ParameterInfo]) -> Result<Vec<Tie>> {
    let mut by_name: BTreeMap<&str, Vec<&ParameterInfo>> = BTreeMap::new();
    for info in parameters {
        by_name.entry(&info.name).or_default().push(info);
    }
    let mut ties = Vec::new();
    for (name, sites) in by_name.into_iter().filter(|(_, sites)| sites.len() > 1) {
        if let Some(other) = sites.iter().find(|info| info.dims != sites[0].dims) {
            return Err(Error::Invalid(format!(
                "parameters named `{name}` are tied, but have dimensions {:?} in stage {} and {:?} in stage {}: \
                 give them one shape or two names",
                sites[0].dims, sites[0].site.stage, other.dims, other.site.stage
            )));
        }
        ties.push(Tie {
            name: name.to_owned(),
            sites: sites.iter().map(|info| info.site).collect(),
        });
    }
    Ok(ties)
}

/// Follows the shape of the data through all stages to the loss.
fn check_shapes<S: Stage>(
    ranks: &Ranks<S>,
    schedule: &Schedule,
    (input, target): (Shape, Shape),
) -> Result<()> {
    let mut shape = input;
    for stage in (0..schedule.stages()).map(StageId) {
        let rank = schedule.rank_of(stage);
        let giver = if stage.0 == 0 {
            "the data".to_owned()
        } else {
            format!("stage {}", stage.0 - 1)
        };
        let message = OutputShape { stage, input: shape };
        let description = ranks.ask("checking shapes", rank, message).map_err(|error| {
            refusal(
                error,
                &format!("stage {stage} (rank {rank}) refuses what {giver} gives, {shape}"),
            )
        })?;
        shape = described(&description)
            .ok_or_else(|| Error::Stopped(format!(": the output of stage {stage} cannot be read")))?;
    }
    let last = schedule.rank_of(schedule.last_stage());
    let message = CheckLoss {
        output: shape,
        target,
    };
    ranks.ask("checking shapes", last, message).map_err(|error| {
        refusal(
            error,
            &format!("the loss refuses an output of {shape} with targets of {target}"),
        )
    })
}

/// Why a shape was refused, unless whoever was asked is gone.
fn refusal(error: Error, what: &str) -> Error {
    match error {
        Error::ProcessGone(_) => error,
        error => Error::Invalid(format!("{what}: {error}")),
    }
}

/// Refuses inputs and targets of different data: processes that take any compare their first micro-batch.
fn check_data<S: Stage>(ranks: &Ranks<S>, data: Option<&dyn DataSource>) -> Result<()> {
    let hash = |data: &dyn DataSource| {
        let (input, target) = data.micro_batch(0, MicroBatch(0))?;
        let mut bytes = Vec::new();
        for tensor in [input, target] {
            tensor.write(&mut bytes).expect("memory takes what is written");
        }
        let hash = Sha256::digest(&bytes);
        Ok((ranks.peers().process(), hash.to_vec()))
    };
    let own = data.map(hash).transpose().map(|own| own.into_iter().collect());
    let all = ranks.spread("comparing data", own)?;
    match all.iter().find(|(_, hash)| *hash != all[0].1) {
        None => Ok(()),
        Some((process, _)) => Err(Error::Invalid(format!(
            "process {process} has other data than process {}: their first micro-batches differ; the first and the last stage need \
             the same files",
            all[0].0
        ))),
    }
}
