//! Starting a pipeline: links, actors, stages, ties, and the check that shapes fit.

use std::collections::BTreeMap;
use std::sync::Arc;

use pipewright_stages::loss::Loss;
use pipewright_stages::{Place, Shape, Stage};

use super::builder::missing;
use super::{Pipeline, PipelineBuilder};
use crate::actor::{Build, CheckLoss, OutputShape, Runtime, Tied};
use crate::data::{Feed, Loader};
use crate::error::{Error, Result};
use crate::id::{Rank, StageId};
use crate::schedule::{Action, Schedule};
use crate::transport;
use crate::worker::{ParameterInfo, Tie, WorkerParts};

pub(super) fn launch<S: Stage>(mut builder: PipelineBuilder<S>) -> Result<Pipeline<S>> {
    let schedule = Arc::new(
        builder
            .schedule
            .take()
            .ok_or_else(|| missing("schedule"))?
            .in_turn(),
    );
    let data = builder.data.take().ok_or_else(|| missing("data"))?;
    let loss = builder.loss.take().ok_or_else(|| missing("loss"))?;
    check_threads(builder.threads_per_rank)?;
    let places = places(&builder.places, schedule.ranks())?;
    check_replicas(&schedule)?;
    check_count(&schedule, builder.stages.len())?;
    let (loader, inputs, targets) = Loader::start(Arc::clone(&data), schedule.micro_batches())?;
    let threads = builder.threads_per_rank;
    let all = threads.saturating_mul(schedule.ranks() as usize);
    let mut cores = cores(builder.pin, all).into_iter();
    let mut parts = worker_parts(&mut builder, &schedule, all, &places, loss, [inputs, targets]).into_iter();
    let runtime = Runtime::start(schedule.ranks())?;
    let built = runtime.ask_all(|_| Build {
        parts: parts.next().expect("one for each rank"),
        threads,
        cores: cores.by_ref().take(threads).collect(),
    })?;
    let mut parameters: Vec<ParameterInfo> = built.into_iter().flatten().collect();
    parameters.sort_by_key(|info| (info.site.stage, info.site.index));
    let ties = ties(&parameters)?;
    runtime.ask_all(|_| Tied { ties: ties.clone() })?;
    check_shapes(&runtime, &schedule, data.shapes())?;

    Ok(Pipeline {
        runtime,
        loader,
        data,
        schedule,
        optimizer: builder.optimizer,
        learning_rate: builder.learning_rate,
        config: builder.config,
        parameters,
        next_step: 0,
        failure: None,
    })
}

/// What each rank's thread makes its worker of. `threads` are those of all ranks.
fn worker_parts<S: Stage>(
    builder: &mut PipelineBuilder<S>,
    schedule: &Arc<Schedule>,
    threads: usize,
    places: &[Place],
    loss: Box<dyn Loss<S::Wire>>,
    [inputs, targets]: [Feed; 2],
) -> Vec<WorkerParts<S>> {
    let links = transport::connect(schedule.ranks(), threads, room(schedule));
    let worker = |(transport, rank)| WorkerParts {
        rank,
        schedule: Arc::clone(schedule),
        transport: Box::new(transport) as _,
        stages: Vec::new(),
        loss: None,
        inputs: None,
        targets: None,
        place: places[rank.index()],
        optimizer: Arc::clone(&builder.optimizer),
        clip: builder.clip,
    };
    let mut parts: Vec<_> = links.into_iter().zip((0..).map(Rank)).map(worker).collect();
    for (stage, build) in (0..).map(StageId).zip(std::mem::take(&mut builder.stages)) {
        parts[schedule.rank_of(stage).index()].stages.push((stage, build));
    }
    let last = schedule.rank_of(schedule.last_stage()).index();
    parts[schedule.rank_of(StageId(0)).index()].inputs = Some(inputs);
    parts[last].targets = Some(targets);
    parts[last].loss = Some(loss);
    parts
}

fn check_threads(threads: usize) -> Result<()> {
    match threads {
        0 => Err(Error::Invalid(
            "0 threads a rank cannot train: give `threads_per_rank` 1 or more".to_owned(),
        )),
        _ => Ok(()),
    }
}

/// How many wires and blocks can be on the way to a rank at once: a step's wires, or an evaluation's, and from each peer what it
/// says before it hears again, of a tied parameter, of the step's end, of its own end.
fn room(schedule: &Schedule) -> usize {
    let ranks = (0..schedule.ranks()).map(Rank);
    let receives = |rank| {
        let actions = schedule.actions(rank).iter();
        actions
            .filter(|action| matches!(action, Action::Recv(..)))
            .count()
    };
    let evaluation = 4 * schedule.stages() as usize;
    let most = ranks.map(receives).max().unwrap_or(0).max(evaluation);
    most + 4 * schedule.ranks() as usize
}

/// A place for each rank.
fn places(given: &[Place], ranks: u32) -> Result<Vec<Place>> {
    let ranks = ranks as usize;
    match given {
        [] => Ok(vec![Place::default(); ranks]),
        [one] => Ok(vec![*one; ranks]),
        all if all.len() == ranks => Ok(all.to_vec()),
        all => Err(Error::Invalid(format!(
            "{} places for {ranks} ranks: give one for each, or one for all",
            all.len()
        ))),
    }
}

fn check_replicas(schedule: &Schedule) -> Result<()> {
    match schedule.placement().replicas() {
        1 => Ok(()),
        replicas => Err(Error::Invalid(format!(
            "schedule {} is for {replicas} replicas of a pipeline side by side (placement {}); the engine trains one: \
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
    runtime: &Runtime<S>,
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
        shape = runtime
            .ask(rank, OutputShape { stage, input: shape })
            .map_err(|error| {
                Error::Invalid(format!(
                    "stage {stage} (rank {rank}) refuses what {giver} gives, {shape}: {error}"
                ))
            })?;
    }
    let last = schedule.rank_of(schedule.last_stage());
    runtime
        .ask(
            last,
            CheckLoss {
                output: shape,
                target,
            },
        )
        .map_err(|error| {
            Error::Invalid(format!(
                "the loss refuses an output of {shape} with targets of {target}: {error}"
            ))
        })
}
