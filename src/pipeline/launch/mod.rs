//! Launches a pipeline: connections, actors, stages, ties, and the checks that everything fits together.

mod cores;
mod duties;
mod kinds;
mod parameters;
mod seats;
mod transfers;

pub use cores::cores;
pub(super) use duties::duties;

use std::sync::Arc;

use kinds::check_kinds_of_gpus;
use parameters::{first_trained, of_first_replica, ties};
use pipewright_stages::{Device, Stage};
use transfers::{between_gpus, room};

use super::alike;
use super::running::Pipeline;
use super::shapes::{allow, check_shapes};
use super::spec::{Ends, MakeEnds, Spec};
use crate::actor::{Job, Ranks};
use crate::data::Loader;
use crate::error::{LaunchError, Result};
use crate::fabric::{self, End, Peers, World};
use crate::id::StageId;
use crate::mesh::Mesh;
use crate::worker::{Built, ParameterInfo, Plan, Tie};

/// Launches a pipeline with these processes. No process takes anything from the spec, so it can be launched
/// again.
pub(super) fn launch<S: Stage>(spec: &Spec<S>, world: Option<World>) -> Result<Pipeline<S>> {
    let processes = world.as_ref().map_or(1, World::processes);
    let whole = world.as_ref().map_or(1, World::whole);
    let planned = Plan::of(spec, processes, whole).and_then(|plan| {
        let gpus = between_gpus(&plan.schedules, &plan.mesh)?;
        Ok((plan, gpus))
    });
    let (mut plan, gpus) = match planned {
        Ok(planned) => planned,
        Err(error) => {
            if let Some(world) = world {
                world.fail(&error);
            }
            return Err(error);
        }
    };
    let (own, local) = world.as_ref().map_or((0, &[0][..]), |world| (world.process(), world.local()));
    let threads = |process: &u32| plan.threads.saturating_mul(plan.mesh.ranks_of(*process).len());
    let before: usize = local.iter().take_while(|process| **process < own).map(threads).sum();
    let all: usize = local.iter().map(threads).fold(0, usize::saturating_add);
    let room = room(&plan);
    let crew = world.as_ref().map(World::crew);
    let (ends, peers) = match (world.zip(spec.connect), &spec.ends) {
        (Some((world, connect)), _) => {
            let (ends, peers) = connect(world, &plan.mesh, all, room, gpus)?;
            (boxed(ends), peers)
        }
        (None, Some(connect)) => (given_ends(connect, &plan.mesh, room)?, Peers::none()),
        (None, None) => {
            let ends = fabric::connect(plan.mesh.world_size(), all, room);
            (boxed(ends), Peers::none())
        }
    };
    let cores = cores(spec.pin, all).into_iter().skip(before);
    let ranks = Ranks::start(plan.mesh.clone(), peers, spec.stalls.clone())?;
    ranks.take_data_from(plan.data.describe());
    spec.on_stall.iter().for_each(|listener| ranks.on_stall(Arc::clone(listener)));
    // The ranks are watched by now: another process may take its time before it comes here.
    if ranks.peers().processes() > 1 {
        let what = "comparing the processes";
        let compared = ranks.together(what, |peers| peers.compare(what, alike::parts(spec, &plan)));
        compared.inspect_err(|error| ranks.peers().fail(error))?;
    }
    let (_, summed) = alike::known(ranks.peers().processes(), &plan.data);
    if let Some(summed) = &summed {
        plan.data = Arc::clone(summed) as _;
    }
    let plan = Arc::new(plan);
    let started = start(spec, &plan, &ranks, ends, cores);
    let (loaders, parameters) = started.inspect_err(|error| ranks.peers().fail(error))?;
    let mut pipeline = Pipeline::new(spec, plan, ranks, loaders, summed, parameters);
    pipeline.crew = crew;
    Ok(pipeline)
}

/// Builds the stages on their ranks, connects tied parameters, and checks that everything fits together.
fn start<S: Stage>(
    spec: &Spec<S>,
    plan: &Arc<Plan>,
    ranks: &Ranks<S>,
    ends: Ends<S::Wire>,
    mut cores: impl Iterator<Item = core_affinity::CoreId>,
) -> Result<(Vec<Loader>, Vec<ParameterInfo>)> {
    let (loaders, seats) = seats::seats(spec, plan, ranks, ends)?;
    let mut seats = seats.into_iter();
    let built = ranks.ask_all("building the stages", |rank| {
        // On a GPU, pinning would also pin the threads that CUDA and NCCL start.
        let pinned = match plan.mesh.place(rank).device {
            Device::Cpu => plan.threads,
            Device::Cuda(_) => 0,
        };
        let cores = cores.by_ref().take(pinned).collect();
        Job::build(Arc::clone(plan), seats.next().expect("one for each rank"), cores)
    })?;
    let Fitted { parameters, ties, first_trained } = fit(built, plan)?;
    if let Some(tie) = ties.first().filter(|_| plan.max_staleness() > 0) {
        return Err(LaunchError::new(format!(
            "weights may not be stale in a model with tied parameters (`{}`), whose copies must stay equal: \
             set `max_staleness` (`pipeline.max_staleness`) to 0",
            tie.name
        ))
        .into());
    }
    if let Some(tie) = ties.iter().find(|tie| tie.is_trained && plan.privacy.is_some()) {
        return Err(LaunchError::new(format!(
            "a training cannot be private in a model with a tied parameter that is trained (`{}`): the \
             gradients of its copies are added when they are clipped already; freeze it or give each layer \
             weights of its own (`model.tied = false`), or leave out `.privacy(...)` (`privacy.clip`)",
            tie.name
        ))
        .into());
    }
    ranks.ask_all("connecting the ranks", |_| {
        let ties = ties.clone();
        Job::renew(move |worker| worker.tie(ties, first_trained))
    })?;
    let numbers = check_shapes(ranks, &plan.schedules[0], plan.data.shapes())?;
    allow(ranks, numbers, &parameters, plan)?;
    Ok((loaders, parameters))
}

/// What follows from all that the ranks have built.
pub(super) struct Fitted {
    /// The parameters in layer order.
    pub(super) parameters: Vec<ParameterInfo>,
    /// Those that are tied.
    pub(super) ties: Vec<Tie>,
    /// The stages before it are frozen.
    pub(super) first_trained: StageId,
}

/// Fits together what the ranks have built. Refuses what does not fit.
pub(super) fn fit(built: Vec<Built>, plan: &Plan) -> Result<Fitted> {
    check_kinds_of_gpus(&built, &plan.mesh)?;
    let parameters = of_first_replica(built, &plan.mesh)?;
    let ties = ties(&parameters)?;
    let first_trained = first_trained(&parameters, plan.placement().stages());
    Ok(Fitted { parameters, ties, first_trained })
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
