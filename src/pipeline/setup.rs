//! The checked parts of a pipeline: all are there, and they fit each other.

use std::sync::Arc;

use pipewright_stages::{Device, Stage};

use super::parts::{Parts, Schedules};
use super::sync::SyncMode;
use super::transfers::between_gpus;
use crate::data::DataSource;
use crate::error::{LaunchError, Result, ScheduleError, Synchronous, WholeUpdates};
use crate::fabric::GpuPairs;
use crate::groups::Groups;
use crate::mesh::Mesh;
use crate::schedule::Schedule;

/// What is launched: all parts are there, and they fit each other.
pub(super) struct Setup {
    /// By replica.
    pub(super) schedules: Vec<Arc<Schedule>>,
    pub(super) groups: Groups,
    pub(super) data: Arc<dyn DataSource>,
    /// Where every rank of the run is.
    pub(super) mesh: Mesh,
    /// The GPUs of different processes between which the schedule sends.
    pub(super) gpus: GpuPairs,
}

impl Setup {
    /// # Errors
    /// [`LaunchError`] when a part is missing or two do not fit each other.
    pub(super) fn of<S: Stage>(parts: &Parts<S>, processes: u32) -> Result<Self> {
        let missing = |part| LaunchError::Missing { part };
        check_replicas(parts.replicas, parts.groups())?;
        let (groups, schedules) = match &parts.schedules {
            Schedules::Missing => return Err(missing("schedule").into()),
            Schedules::Whole(whole) if whole.micro_batches() == 0 => {
                return Err(ScheduleError::NoMicroBatch.into());
            }
            Schedules::Whole(whole) => shares(parts, whole),
            Schedules::OfReplicas(each) => of_replicas(parts, each.clone())?,
        };
        let data = Arc::clone(parts.data.as_ref().ok_or(missing("data"))?);
        if parts.loss.is_none() {
            return Err(missing("loss").into());
        }
        check_threads(parts.threads_per_rank)?;
        check_sharded(parts)?;
        check_server(parts)?;
        let first = schedules.first().expect("checked: there are replicas");
        check_directions(first)?;
        check_count(first, parts.stages.len())?;
        let mesh = Mesh::new([parts.replicas, first.ranks(), 1], processes, &parts.places)?.mapped(parts.map);
        let lowered = |schedule: Schedule| Arc::new(schedule.in_turn().for_replicas(parts.replicas));
        let schedules: Vec<_> = schedules.into_iter().map(lowered).collect();
        let gpus = between_gpus(&schedules, &mesh)?;
        Ok(Self {
            schedules,
            groups,
            data,
            mesh,
            gpus,
        })
    }
}

/// The gradient groups, and each replica's part of the schedule for the whole batch.
fn shares<S: Stage>(parts: &Parts<S>, whole: &Schedule) -> (Groups, Vec<Schedule>) {
    let groups = Groups::new(whole.micro_batches(), parts.groups());
    let part = |replica| match groups.share(replica, parts.replicas) {
        all if all.len() as u32 == whole.micro_batches() => whole.clone(),
        share => whole.part(share),
    };
    (groups, (0..parts.replicas).map(part).collect())
}

/// The gradient groups, and the schedules that were given for the replicas.
fn of_replicas<S: Stage>(parts: &Parts<S>, schedules: Vec<Schedule>) -> Result<(Groups, Vec<Schedule>)> {
    if schedules.len() != parts.replicas as usize {
        return Err(LaunchError::ReplicaSchedules {
            given: schedules.len(),
            replicas: parts.replicas,
        }
        .into());
    }
    let batch = schedules.iter().map(Schedule::micro_batches).sum();
    if batch == 0 {
        return Err(ScheduleError::NoMicroBatch.into());
    }
    let groups = Groups::new(batch, parts.groups());
    for (replica, schedule) in (0..).zip(&schedules) {
        let (given, share) = (schedule.micro_batches(), groups.share(replica, parts.replicas));
        if given != share.len() as u32 {
            let share = share.len() as u32;
            return Err(LaunchError::ReplicaSchedule {
                replica,
                given,
                batch,
                share,
            }
            .into());
        }
        let [given, first] = [schedule, &schedules[0]].map(Schedule::placement);
        if given != first {
            let [given, first] = [given, first].map(ToString::to_string);
            return Err(LaunchError::ReplicaPlacement {
                replica,
                given,
                first,
            }
            .into());
        }
    }
    Ok((groups, schedules))
}

fn check_threads(threads: usize) -> Result<()> {
    match threads {
        0 => Err(LaunchError::NoThreads.into()),
        _ => Ok(()),
    }
}

fn check_replicas(replicas: u32, groups: u32) -> Result<()> {
    match (1..=groups).contains(&replicas) {
        true => Ok(()),
        false => Err(LaunchError::Replicas { replicas, groups }.into()),
    }
}

/// Refuses to shard an optimizer that has no state, or that needs whole parameters.
fn check_sharded<S: Stage>(parts: &Parts<S>) -> Result<()> {
    let optimizer = &parts.optimizer;
    // An optimizer that updates parts keeps as much for one parameter as for another.
    let why = match optimizer.updates_parts() {
        _ if !parts.sharded => return Ok(()),
        false => WholeUpdates::WholeParameters,
        true if optimizer.states("", &[1]).is_empty() => WholeUpdates::NoState,
        true => return Ok(()),
    };
    let optimizer = format!("{optimizer:?}");
    Err(LaunchError::NotSharded { optimizer, why }.into())
}

/// Refuses a server for an optimizer that needs whole parameters, and stale weights on GPUs.
fn check_server<S: Stage>(parts: &Parts<S>) -> Result<()> {
    if parts.replicas == 1 || parts.sync == SyncMode::Reduce {
        return Ok(());
    }
    if !parts.optimizer.updates_parts() {
        let optimizer = format!("{:?}", parts.optimizer);
        return Err(LaunchError::NotServed { optimizer }.into());
    }
    let gpu = parts.places.iter().find(|place| place.device != Device::Cpu);
    let why = match gpu {
        _ if parts.sync.max_staleness() == 0 => return Ok(()),
        Some(place) => Synchronous::Gpu { device: place.device },
        None if parts.restarting.is_some() => Synchronous::Restarts,
        None => return Ok(()),
    };
    Err(LaunchError::NotStale { why }.into())
}

fn check_directions(schedule: &Schedule) -> Result<()> {
    match schedule.placement().directions() {
        1 => Ok(()),
        directions => Err(LaunchError::SeveralDirections {
            schedule: schedule.name().to_owned(),
            directions,
            placement: schedule.placement().to_string(),
        }
        .into()),
    }
}

fn check_count(schedule: &Schedule, stages: usize) -> Result<()> {
    if schedule.stages() as usize == stages {
        return Ok(());
    }
    Err(LaunchError::Stages {
        expected: schedule.stages(),
        given: stages,
    }
    .into())
}
