//! Launches a pipeline: connections, actors, stages, ties, and the checks that everything fits together.

use std::sync::Arc;
use std::time::Instant;

use feeds::Feeds;
use pipewright_stages::{Device, Stage};
use replicas::of_first_replica;
use seat::Seat;

use super::alike;
use super::cores;
use super::on_its_way::Beside;
use super::parts::{Ends, MakeEnds, Parts, Restarting};
use super::running::{Pipeline, Text};
use super::setup::Setup;
use super::shapes::check_shapes;
use super::sizes::agree;
use super::stale::Stale;
use super::ties::ties;
use super::transfers::room;
use crate::actor::{Build, Ranks, Tied};
use crate::data::Loader;
use crate::error::{LaunchError, Result};
use crate::fabric::{self, End, Peers, Recorded, Transport, World};
use crate::id::{StageId, WorldRank};
use crate::mesh::{Axis, Mesh};
use crate::worker::{ParameterInfo, WorkerParts};

mod feeds;
mod replicas;
mod seat;

/// Launches a pipeline with these processes. No process takes anything from the parts, so it can be launched
/// again.
pub(super) fn launch<S: Stage>(parts: &Parts<S>, world: Option<World>) -> Result<Pipeline<S>> {
    let processes = world.as_ref().map_or(1, World::processes);
    let mut setup = match Setup::of(parts, processes) {
        Ok(setup) => setup,
        Err(error) => {
            if let Some(world) = world {
                world.fail(&error);
            }
            return Err(error);
        }
    };
    let threads = parts
        .threads_per_rank
        .saturating_mul(setup.mesh.ranks_each() as usize);
    let (before, beside) = world
        .as_ref()
        .map_or((0, 1), |world| (world.local_rank(), world.local().len()));
    let all = threads.saturating_mul(beside);
    let room = room(&setup.schedules, &setup.mesh, max_staleness(parts) > 0);
    let gpus = std::mem::take(&mut setup.gpus);
    let (ends, peers) = match (world.zip(parts.connect), &parts.ends) {
        (Some((world, connect)), _) => {
            let (ends, peers) = connect(world, &setup.mesh, all, room, gpus)?;
            (boxed(ends), peers)
        }
        (None, Some(connect)) => (given_ends(connect, &setup.mesh, room)?, Peers::none()),
        (None, None) => {
            let ends = fabric::connect(setup.mesh.world_size(), all, room);
            (boxed(ends), Peers::none())
        }
    };
    let cores = cores(parts.pin, all).into_iter().skip(before * threads);
    let ranks = Ranks::start(setup.mesh.clone(), peers, parts.stalls.clone())?;
    ranks.take_data_from(setup.data.describe());
    parts
        .on_stall
        .iter()
        .for_each(|listener| ranks.on_stall(Arc::clone(listener)));
    // The ranks are watched by now: another process may take its time before it comes here.
    if ranks.peers().processes() > 1 {
        let what = "comparing the processes";
        let compared = ranks.together(what, |peers| peers.compare(what, alike::parts(parts, &setup)));
        compared.inspect_err(|error| ranks.peers().fail(error))?;
    }
    let (_, summed) = alike::known(ranks.peers().processes(), &setup.data);
    let stale = Stale::at_most(max_staleness(parts));
    let (schedules, groups) = (setup.schedules.clone(), setup.groups);
    let data = Arc::clone(&setup.data);
    if let Some(summed) = &summed {
        setup.data = Arc::clone(summed) as _;
    }
    let started = start(parts, setup, &ranks, ends, cores);
    let (loaders, parameters) = started.inspect_err(|error| ranks.peers().fail(error))?;
    Ok(Pipeline {
        ranks,
        loaders,
        data,
        summed,
        schedules,
        groups,
        optimizer: Arc::clone(&parts.optimizer),
        learning_rate: parts.learning_rate,
        stale,
        text: Text::default(),
        beside: Beside::default(),
        config: parts.config.clone(),
        parameters,
        origin: Instant::now(),
        next_step: 0,
        known_steps: 0,
        failure: None,
        again: None,
        rejoined: None,
    })
}

/// Builds the stages on their ranks, connects tied parameters, and checks that everything fits together.
fn start<S: Stage>(
    given: &Parts<S>,
    setup: Setup,
    ranks: &Ranks<S>,
    ends: Ends<S::Wire>,
    mut cores: impl Iterator<Item = core_affinity::CoreId>,
) -> Result<(Vec<Loader>, Vec<ParameterInfo>)> {
    let schedule = Arc::clone(&setup.schedules[0]);
    let mesh = setup.mesh.clone();
    let (data, groups) = (Arc::clone(&setup.data), setup.groups);
    let threads = given.threads_per_rank;
    let restarts = given
        .restarting
        .as_ref()
        .map(|given| given.restarts)
        .unwrap_or_default();
    let (loaders, parts) = worker_parts(given, setup, ranks, ends)?;
    let mut parts = parts.into_iter();
    let built = ranks.ask_all("building the stages", |_| {
        let parts = parts.next().expect("one for each rank");
        // On a GPU, pinning would also pin the threads that CUDA and NCCL start.
        let pinned = match parts.mesh.place(parts.transport.rank()).device {
            Device::Cpu => threads,
            Device::Cuda(_) => 0,
        };
        Build {
            cores: cores.by_ref().take(pinned).collect(),
            parts,
            threads,
            restarts,
        }
    })?;
    let parameters = of_first_replica(built, &mesh)?;
    let ties = ties(&parameters)?;
    if let Some(tie) = ties.first().filter(|_| max_staleness(given) > 0) {
        return Err(LaunchError::new(format!(
            "weights may not be stale in a model with tied parameters (`{}`), whose copies must stay equal: \
             set `max_staleness` (`pipeline.max_staleness`) to 0",
            tie.name
        ))
        .into());
    }
    let first_trained = first_trained(&parameters, schedule.stages());
    ranks.ask_all("connecting the ranks", |_| Tied {
        ties: ties.clone(),
        first_trained,
    })?;
    let numbers = check_shapes(ranks, &schedule, data.shapes())?;
    agree(ranks, numbers, &parameters, groups)?;
    Ok((loaders, parameters))
}

/// What each of this process's ranks makes its worker from, and the loaders of the replicas whose data a rank
/// here needs.
fn worker_parts<S: Stage>(
    given: &Parts<S>,
    setup: Setup,
    ranks: &Ranks<S>,
    ends: Ends<S::Wire>,
) -> Result<(Vec<Loader>, Vec<WorkerParts<S>>)> {
    let (mesh, placement) = (setup.mesh, setup.schedules[0].placement().clone());
    let seat = |rank: WorldRank| Seat::of(rank, &mesh, &placement);
    let mut feeds = Feeds::default();
    for end in &ends {
        let replica = mesh.coordinate(end.rank()).replica;
        if seat(end.rank()).takes_data() && !feeds.has(replica) {
            let share = setup.groups.share(replica, mesh.size(Axis::Data));
            feeds.add(replica, Loader::start(Arc::clone(&setup.data), share)?);
        }
    }
    let builder = |stage: StageId| (stage, given.stages[stage.index()].for_rank());
    let alike = setup.schedules.windows(2).all(|pair| pair[0] == pair[1]);
    let worker = |transport: Box<dyn Transport<S::Wire> + Send>| {
        let rank = transport.rank();
        let seat = seat(rank);
        let replica = mesh.coordinate(rank).replica;
        WorkerParts {
            rank: seat.rank,
            progress: ranks.progress(rank),
            schedule: Arc::clone(&setup.schedules[replica as usize]),
            transport: match &given.restarting {
                Some(Restarting { copy, .. }) => Box::new(Recorded::new(transport, *copy)),
                None => transport,
            },
            stages: seat.stages.iter().copied().map(builder).collect(),
            loss: given.loss.as_ref().filter(|_| seat.has_loss).map(|loss| loss()),
            inputs: seat.takes_inputs.then(|| feeds.inputs(replica)).flatten(),
            targets: seat.has_loss.then(|| feeds.targets(replica)).flatten(),
            data: Arc::clone(&setup.data),
            mesh: mesh.clone(),
            groups: setup.groups,
            sharded: (given.sharded || given.sync.divides_updates()) && mesh.size(Axis::Data) > 1,
            max_staleness: max_staleness(given),
            alike,
            optimizer: Arc::clone(&given.optimizer),
            clip: given.clip,
        }
    };
    let parts = ends.into_iter().map(worker).collect();
    Ok((feeds.loaders, parts))
}

fn boxed<W: Send + 'static>(ends: Vec<End<W>>) -> Ends<W> {
    ends.into_iter().map(|end| Box::new(end) as _).collect()
}

/// The ends that the caller makes, if there is one for each rank.
fn given_ends<W: 'static>(connect: &MakeEnds<W>, mesh: &Mesh, room: usize) -> Result<Ends<W>> {
    let ends = connect(mesh, room);
    let ranks = mesh.world_size();
    match mesh.world().eq(ends.iter().map(|end| end.rank())) {
        true => Ok(ends),
        false => Err(LaunchError::new(format!(
            "the pipeline needs the ends of its {ranks} ranks, in rank order, and was given others"
        ))
        .into()),
    }
}

/// Of how many steps updates may be missing. With one replica, none ever are.
fn max_staleness<S: Stage>(parts: &Parts<S>) -> u32 {
    match parts.replicas {
        1 => 0,
        _ => parts.sync.max_staleness(),
    }
}

/// The first stage that is trained: those before it have parameters, and all of them are frozen. It is the
/// last stage if all are frozen. `parameters` are in layer order.
fn first_trained(parameters: &[ParameterInfo], stages: u32) -> StageId {
    let is_frozen = |stage: &u32| {
        let mut own = parameters
            .iter()
            .filter(|info| info.site.stage == StageId(*stage))
            .peekable();
        own.peek().is_some() && own.all(|info| !info.is_trained)
    };
    let frozen = (0..stages.saturating_sub(1)).take_while(is_frozen);
    StageId(frozen.count() as u32)
}
