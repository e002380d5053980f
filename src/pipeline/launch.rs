//! Launches a pipeline: connections, actors, stages, ties, and the checks that everything fits together.

mod seat;

use std::sync::Arc;
use std::time::Instant;

use pipewright_stages::{Device, Stage};

use super::alike;
use super::parts::Parts;
use super::running::Pipeline;
use super::setup::Setup;
use super::shapes::check_shapes;
use super::ties::ties;
use super::transfers::room;
use crate::actor::{Build, Ranks, Tied};
use crate::data::Loader;
use crate::error::Result;
use crate::fabric::{self, End, Peers, Transport};
use crate::id::StageId;
use crate::worker::{ParameterInfo, WorkerParts};
use seat::Seat;

pub(super) fn launch<S: Stage>(mut parts: Parts<S>) -> Result<Pipeline<S>> {
    let world = parts.world.take();
    let processes = world.as_ref().map_or(1, |(world, _)| world.processes());
    let mut setup = match Setup::of(&mut parts, processes) {
        Ok(setup) => setup,
        Err(error) => {
            if let Some((world, _)) = world {
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
        .map_or((0, 1), |(world, _)| (world.local_rank(), world.local().len()));
    let all = threads.saturating_mul(beside);
    let room = room(&setup.schedule, &setup.mesh);
    let (ends, peers) = match world {
        Some((world, connect)) => connect(world, &setup.mesh, all, room, std::mem::take(&mut setup.gpus))?,
        None => (fabric::connect(setup.mesh.world_size(), all, room), Peers::none()),
    };
    if peers.processes() > 1 {
        let compared = peers.compare("comparing the processes", alike::parts(&parts, &setup));
        compared.inspect_err(|error| peers.fail(error))?;
    }
    let cores = cores(parts.pin, all).into_iter().skip(before * threads);
    let ranks = Ranks::start(setup.mesh.clone(), peers, parts.stall_limit)?;
    let (_, summed) = alike::known(ranks.peers().processes(), &setup.data);
    let (schedule, data) = (Arc::clone(&setup.schedule), Arc::clone(&setup.data));
    if let Some(summed) = &summed {
        setup.data = Arc::clone(summed) as _;
    }
    let started = start(&mut parts, setup, &ranks, ends, cores);
    let (loader, parameters) = started.inspect_err(|error| ranks.peers().fail(error))?;
    Ok(Pipeline {
        ranks,
        loader,
        data,
        summed,
        schedule,
        optimizer: parts.optimizer,
        learning_rate: parts.learning_rate,
        config: parts.config,
        parameters,
        origin: Instant::now(),
        next_step: 0,
        known_steps: 0,
        failure: None,
    })
}

/// Builds the stages on their ranks, connects tied parameters, and checks that everything fits together.
fn start<S: Stage>(
    given: &mut Parts<S>,
    setup: Setup<S::Wire>,
    ranks: &Ranks<S>,
    ends: Vec<End<S::Wire>>,
    mut cores: impl Iterator<Item = core_affinity::CoreId>,
) -> Result<(Option<Loader>, Vec<ParameterInfo>)> {
    let schedule = Arc::clone(&setup.schedule);
    let data = Arc::clone(&setup.data);
    let threads = given.threads_per_rank;
    let (loader, parts) = worker_parts(given, setup, ranks, ends)?;
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
        }
    })?;
    let mut parameters: Vec<ParameterInfo> = built.into_iter().flatten().collect();
    parameters.sort_by_key(|info| (info.site.stage, info.site.index));
    let ties = ties(&parameters)?;
    ranks.ask_all("connecting the ranks", |_| Tied { ties: ties.clone() })?;
    check_shapes(ranks, &schedule, data.shapes())?;
    Ok((loader, parameters))
}

/// What each of this process's ranks makes its worker from, and the loader if one of these ranks needs data.
fn worker_parts<S: Stage>(
    given: &mut Parts<S>,
    setup: Setup<S::Wire>,
    ranks: &Ranks<S>,
    ends: Vec<End<S::Wire>>,
) -> Result<(Option<Loader>, Vec<WorkerParts<S>>)> {
    let (schedule, mesh) = (setup.schedule, setup.mesh);
    let seats = ends
        .iter()
        .map(|end| Seat::of(end.rank(), &mesh, schedule.placement()));
    let seats: Vec<Seat> = seats.collect();
    let takes_data = seats.iter().any(Seat::takes_data);
    let started = takes_data.then(|| Loader::start(setup.data, schedule.micro_batches()));
    let (loader, mut inputs, mut targets) = match started.transpose()? {
        Some((loader, inputs, targets)) => (Some(loader), Some(inputs), Some(targets)),
        None => (None, None, None),
    };
    let mut loss = Some(setup.loss);
    let mut builders: Vec<_> = std::mem::take(&mut given.stages).into_iter().map(Some).collect();
    let mut builder = |stage: StageId| {
        let builder = builders[stage.index()].take();
        (stage, builder.expect("checked: one rank has the stage"))
    };
    let worker = |(transport, seat): (End<S::Wire>, Seat)| WorkerParts {
        rank: seat.rank,
        progress: ranks.progress(transport.rank()),
        schedule: Arc::clone(&schedule),
        transport: Box::new(transport) as _,
        stages: seat.stages.into_iter().map(&mut builder).collect(),
        loss: loss.take_if(|_| seat.has_loss),
        inputs: inputs.take_if(|_| seat.takes_inputs),
        targets: targets.take_if(|_| seat.has_loss),
        mesh: mesh.clone(),
        optimizer: Arc::clone(&given.optimizer),
        clip: given.clip,
    };
    let parts = ends.into_iter().zip(seats).map(worker).collect();
    Ok((loader, parts))
}

/// One core for each thread. Empty when there are fewer cores than threads, or only one thread.
pub(crate) fn cores(pin: bool, threads: usize) -> Vec<core_affinity::CoreId> {
    let cores = core_affinity::get_core_ids().unwrap_or_default();
    if pin && threads > 1 && cores.len() >= threads {
        cores
    } else {
        Vec::new()
    }
}
