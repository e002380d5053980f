//! What follows from a spec: the plan of a run. All that it needs is there, and the parts fit each other.

use std::sync::Arc;

use pipewright_stages::optimizer::Optimizer;
use pipewright_stages::units::counted;
use pipewright_stages::{DType, Device, Place, Stage};

use super::spec::{Schedules, Spec, SyncMode};
use crate::error::{CallError, LaunchError, Result, ScheduleError};
use crate::groups::GradientGroups;
use crate::id::{Axis, WorldRank};
use crate::mesh::Mesh;
use crate::plan::Replicas;
use crate::privacy::Privacy;
use crate::schedule::Schedule;
use crate::worker::Plan;

impl Plan {
    /// The plan of a spec, for this number of processes. `whole`: how many the run had when it began.
    ///
    /// # Errors
    /// [`LaunchError`] when a part is missing or two do not fit each other.
    pub(super) fn of<S: Stage>(spec: &Spec<S>, processes: u32, whole: u32) -> Result<Self> {
        let missing = |part: &str| {
            LaunchError::new(format!("the pipeline has no {part}: call `.{part}(...)` before `.launch()`"))
        };
        check_replicas(spec.replicas, spec.groups())?;
        let (groups, schedules) = match &spec.schedules {
            Schedules::Missing => return Err(missing("schedule").into()),
            Schedules::Whole(whole) if whole.micro_batches() == 0 => {
                return Err(ScheduleError::new("a schedule needs at least 1 micro-batch, got 0").into());
            }
            Schedules::Whole(whole) => shares(spec, whole),
            Schedules::OfReplicas(each) => of_replicas(spec, each.clone())?,
        };
        let data = Arc::clone(spec.data.as_ref().ok_or(missing("data"))?);
        if spec.loss.is_none() {
            return Err(missing("loss").into());
        }
        check_threads(spec.threads_per_rank)?;
        check_sharded(spec)?;
        check_server(spec)?;
        check_shards(spec.shards, &*spec.optimizer, spec.is_served())?;
        check_private(spec)?;
        check_barrier(spec)?;
        let first = schedules.first().expect("checked: there are replicas");
        check_directions(first)?;
        check_count(first, spec.stages.len())?;
        let sizes = [spec.replicas, first.ranks(), spec.shards];
        let mesh = match processes == whole {
            true => Mesh::new(sizes, processes, &spec.places)?,
            false => Mesh::uneven(sizes, processes, &spec.places)?,
        };
        let mesh = mesh.mapped(spec.map);
        check_places_of_shards(&mesh)?;
        check_sums(spec, &mesh)?;
        let lowered = |schedule: Schedule| Arc::new(schedule.in_turn().for_replicas(spec.replicas));
        let schedules: Vec<_> = schedules.into_iter().map(lowered).collect();
        Ok(Self {
            schedules,
            groups,
            most_replicas: spec.groups(),
            mesh,
            data,
            optimizer: Arc::clone(&spec.optimizer),
            clip: spec.clip,
            short_sums: spec.sums == DType::Bf16,
            privacy: spec.privacy,
            divides_updates: spec.sharded,
            state_on_host: spec.state_on_host,
            barrier: spec.barrier,
            server: match spec.sync {
                SyncMode::Reduce => None,
                SyncMode::Server { max_staleness } => Some(max_staleness),
            },
            restarts: spec.restarts,
            threads: spec.threads_per_rank,
        })
    }

    /// The same run by other schedules, and perhaps in another shape: with other numbers of replicas, of
    /// ranks of each, and of shards, but with as many ranks in all.
    ///
    /// # Errors
    /// [`CallError`] when there would be more or fewer ranks, when the schedules are for other micro-batches,
    /// when ranks are on GPUs, and when a parameter server would have another shape. [`LaunchError`] when the
    /// schedules place the stages in different ways, or go in two directions, and when this many replicas or
    /// shards cannot train.
    pub(super) fn rescheduled(self: &Arc<Self>, replicas: &Replicas, shards: u32) -> Result<Arc<Self>> {
        let refuse = |problem: String| Err(CallError::new(problem).into());
        let (count, all) = (replicas.count(), self.mesh.world_size());
        let sizes = [count, replicas.ranks(), shards];
        let wanted = sizes.iter().map(|size| u64::from(*size)).fold(1, u64::saturating_mul);
        if wanted != u64::from(all) {
            let [replicas, ranks, shards] = [(count, "replica"), (sizes[1], "rank"), (shards, "shard")]
                .map(|(size, what)| counted(size.into(), what));
            return refuse(format!(
                "{replicas} of {ranks} of {shards} would be {}, and the pipeline has {all} in all: it keeps \
                 as many",
                counted(wanted, "rank"),
            ));
        }
        let mesh = self.mesh.reshaped(sizes)?;
        check_replicas(count, self.most_replicas)?;
        let is_served = self.server.is_some() && count > 1;
        check_shards(shards, &*self.optimizer, is_served)?;
        check_places_of_shards(&mesh)?;
        let given: Vec<_> = (0..count).map(|replica| replicas.schedule(replica)).collect();
        for (replica, schedule) in (0..).zip(&given) {
            let (given_for, share) =
                (schedule.micro_batches(), self.groups.share(replica, count).len() as u32);
            if given_for != share {
                return refuse(format!(
                    "the new schedule of replica {replica} has {given_for} micro-batches, and its share of \
                     the batch is {share}: `GradientGroups::share` says what each replica has"
                ));
            }
            check_one_placement(replica, [schedule, given[0]])?;
        }
        check_directions(given[0])?;
        let lowered = |schedule: &Schedule| Arc::new(schedule.clone().in_turn().for_replicas(count));
        let schedules: Vec<_> = given.into_iter().map(lowered).collect();
        if schedules == self.schedules && mesh == self.mesh {
            return Ok(Arc::clone(self));
        }
        let mut devices = mesh.world().map(|rank| mesh.place(rank).device);
        match devices.find(|device| *device != Device::Cpu) {
            Some(device) => refuse(format!(
                "a rank is on {device}, and ranks on GPUs keep their schedule: by another one a head that is \
                 deferred has other bits, and NCCL connects the ranks of one placement"
            )),
            None if self.server.is_some() && mesh != self.mesh => refuse(
                "a parameter server has parts of the weights on each rank, and keeps its numbers of replicas \
                 and ranks: only with `SyncMode::Reduce` (`pipeline.sync = \"reduce\"`) they may change"
                    .to_owned(),
            ),
            None => Ok(Arc::new(Self { schedules, mesh, ..Self::clone(self) })),
        }
    }
}

/// The gradient groups, and each replica's part of the schedule for the whole batch.
fn shares<S: Stage>(spec: &Spec<S>, whole: &Schedule) -> (GradientGroups, Vec<Schedule>) {
    let groups = GradientGroups::new(whole.micro_batches(), spec.groups());
    let part = |replica| match groups.share(replica, spec.replicas) {
        all if all.len() as u32 == whole.micro_batches() => whole.clone(),
        share => whole.part(share),
    };
    (groups, (0..spec.replicas).map(part).collect())
}

/// The gradient groups, and the schedules that were given for the replicas.
fn of_replicas<S: Stage>(
    spec: &Spec<S>,
    schedules: Vec<Schedule>,
) -> Result<(GradientGroups, Vec<Schedule>)> {
    if schedules.len() != spec.replicas as usize {
        return Err(LaunchError::new(format!(
            "there are {} schedules for {} replicas: give `.replica_schedules(...)` one for each, and leave \
             out `.replicas(...)`",
            schedules.len(),
            spec.replicas
        ))
        .into());
    }
    let batch = schedules.iter().map(Schedule::micro_batches).sum();
    if batch == 0 {
        return Err(ScheduleError::new("a schedule needs at least 1 micro-batch, got 0").into());
    }
    let groups = GradientGroups::new(batch, spec.groups());
    for (replica, schedule) in (0..).zip(&schedules) {
        let (given, share) = (schedule.micro_batches(), groups.share(replica, spec.replicas));
        if given != share.len() as u32 {
            let share = share.len() as u32;
            return Err(LaunchError::new(format!(
                "the schedule of replica {replica} has {given} micro-batches, and its share of a batch of \
                 {batch} is {share}: `GradientGroups::share` says what each replica has"
            ))
            .into());
        }
        check_one_placement(replica, [schedule, &schedules[0]])?;
    }
    Ok((groups, schedules))
}

/// Refuses a replica whose schedule has another placement than the first one.
fn check_one_placement(replica: u32, [schedule, first]: [&Schedule; 2]) -> Result<()> {
    let [given, first] = [schedule, first].map(Schedule::placement);
    if given == first {
        return Ok(());
    }
    let [given, first] = [given, first].map(ToString::to_string);
    Err(LaunchError::new(format!(
        "the schedule of replica {replica} places the stages on ranks {given}, that of replica 0 on {first}: \
         give all replicas one placement"
    ))
    .into())
}

/// Refuses sums in 16 bits where they are not added up so.
fn check_sums<S: Stage>(spec: &Spec<S>, mesh: &Mesh) -> Result<()> {
    let is_on_gpu = |rank| mesh.place(rank).device != Device::Cpu;
    let why = match spec.sums {
        DType::F32 => return Ok(()),
        DType::Bf16 if spec.is_served() => "a parameter server adds up gradients in f32",
        DType::Bf16 if spec.privacy.is_some() => {
            "a sum that is rounded may be further from another than privacy allows"
        }
        DType::Bf16 if mesh.world().any(is_on_gpu) => "GPUs add up gradients in f32",
        DType::Bf16 => return Ok(()),
    };
    Err(LaunchError::new(format!("sums cannot be in bf16: {why}; call `.sums(DType::F32)`, or leave it out"))
        .into())
}

fn check_threads(threads: usize) -> Result<()> {
    match threads {
        0 => Err(LaunchError::new("0 threads a rank cannot train: give `threads_per_rank` 1 or more").into()),
        _ => Ok(()),
    }
}

fn check_replicas(replicas: u32, groups: u32) -> Result<()> {
    match (1..=groups).contains(&replicas) {
        true => Ok(()),
        false => Err(LaunchError::new(format!(
            "{replicas} replicas cannot share {groups} gradient groups, because a replica has whole groups: \
             call `.replicas(...)` with 1 to {groups}, or `.gradient_groups(...)` with more"
        ))
        .into()),
    }
}

/// Refuses to shard an optimizer that has no state, or that needs whole parameters.
fn check_sharded<S: Stage>(spec: &Spec<S>) -> Result<()> {
    let optimizer = &spec.optimizer;
    // An optimizer that updates parts keeps as much for one parameter as for another.
    let why = match optimizer.updates_parts() {
        _ if !spec.sharded => return Ok(()),
        false => "it updates whole parameters only (`Optimizer::updates_parts`)",
        true if optimizer.states("", &[1]).is_empty() => "it has no state, so there is nothing to save",
        true => return Ok(()),
    };
    let optimizer = format!("{optimizer:?}");
    Err(LaunchError::new(format!(
        "{optimizer} cannot be sharded: {why}; leave out `.sharded(true)` (`optimizer.sharded`)"
    ))
    .into())
}

/// Refuses a server for an optimizer that needs whole parameters, and stale weights on GPUs.
fn check_server<S: Stage>(spec: &Spec<S>) -> Result<()> {
    if !spec.is_served() {
        return Ok(());
    }
    if !spec.optimizer.updates_parts() {
        let optimizer = format!("{:?}", spec.optimizer);
        return Err(LaunchError::new(format!(
            "a server cannot use {optimizer}: it updates whole parameters only (`Optimizer::updates_parts`), \
             and each rank of a server owns parts of them; take `SyncMode::Reduce` (`pipeline.sync = \
             \"reduce\"`)"
        ))
        .into());
    }
    let gpu = spec.places.iter().find(|place| place.device != Device::Cpu);
    let why = match gpu {
        _ if spec.max_staleness() == 0 => return Ok(()),
        Some(place) => format!("on {}, only on cpu", place.device),
        None if spec.restarts.most > 0 => "where ranks are built again after a failure: a step that was \
             lost would be made with other weights"
            .to_owned(),
        None => return Ok(()),
    };
    Err(LaunchError::new(format!(
        "weights may not be stale {why}: set `max_staleness` (`pipeline.max_staleness`) to 0"
    ))
    .into())
}

/// Refuses what differential privacy does not go with, and numbers that it cannot have.
fn check_private<S: Stage>(spec: &Spec<S>) -> Result<()> {
    let Some(Privacy { clip, noise, .. }) = spec.privacy else {
        return Ok(());
    };
    let gpu = spec.places.iter().find(|place| place.device != Device::Cpu);
    let why = if !(clip > 0.0 && clip.is_finite()) {
        format!("the largest norm of a gradient is {clip}: it must be above 0")
    } else if !(noise >= 0.0 && noise.is_finite()) {
        format!("the noise is {noise}: it must be 0 or more")
    } else if spec.max_staleness() > 0 {
        "where weights may be stale: set `max_staleness` (`pipeline.max_staleness`) to 0".to_owned()
    } else if let Some(place) = gpu {
        format!("on {}: put all ranks on the CPU (`pipeline.devices`)", place.device)
    } else {
        return Ok(());
    };
    Err(LaunchError::new(format!(
        "a training cannot be private: {why}; or leave out `.privacy(...)` (`privacy.clip`)"
    ))
    .into())
}

/// Refuses steps without a barrier where a step cannot be taken back.
fn check_barrier<S: Stage>(spec: &Spec<S>) -> Result<()> {
    let gpu = spec.places.iter().find(|place| place.device != Device::Cpu);
    let (what, advice) = match gpu {
        _ if spec.barrier => return Ok(()),
        Some(place) => {
            (format!("ranks on {}", place.device), "put all ranks on the CPU (`pipeline.devices`)")
        }
        None if spec.is_served() => {
            ("a parameter server".to_owned(), "take `SyncMode::Reduce` (`pipeline.sync = \"reduce\"`)")
        }
        None if spec.privacy.is_some() => {
            ("a private training".to_owned(), "leave out `.privacy(...)` (`privacy.clip`)")
        }
        None if spec.restarts.most > 0 => {
            ("ranks that are built again after a failure".to_owned(), "set `train.restarts` to 0")
        }
        None => return Ok(()),
    };
    Err(LaunchError::new(format!(
        "{what} cannot train without a barrier: {advice}, or leave out `.barrier(false)` (`pipeline.barrier`)"
    ))
    .into())
}

/// Refuses a number of shards that is no power of two, and what shards cannot do.
fn check_shards(shards: u32, optimizer: &dyn Optimizer, is_served: bool) -> Result<()> {
    if shards == 1 {
        return Ok(());
    }
    if !shards.is_power_of_two() {
        let above = shards.checked_next_power_of_two().unwrap_or(1).max(2);
        return Err(LaunchError::new(format!(
            "{shards} shards are no power of two: call `.shards(...)` (`pipeline.shards`) with {} or {above}",
            above / 2
        ))
        .into());
    }
    let why = if !optimizer.updates_parts() {
        format!(
            "{optimizer:?} updates whole parameters only (`Optimizer::updates_parts`), and a shard has parts \
             of them: take another optimizer"
        )
    } else if is_served {
        "a server has parts of the weights itself: take `SyncMode::Reduce` (`pipeline.sync = \"reduce\"`)"
            .to_owned()
    } else {
        return Ok(());
    };
    Err(LaunchError::new(format!("{shards} shards cannot train: {why}; or set the number of shards to 1"))
        .into())
}

/// Refuses shards of a rank that would compute in different ways.
fn check_places_of_shards(mesh: &Mesh) -> Result<()> {
    let kind = |place: Place| (place.device == Device::Cpu, place.dtype);
    for first in mesh.world().filter(|rank| mesh.coordinate(*rank).shard == 0) {
        let place = mesh.place(first);
        let differs = |other: &WorldRank| kind(mesh.place(*other)) != kind(place);
        if let Some(other) = mesh.group(Axis::Tensor, first).find(differs) {
            let there = mesh.place(other);
            let [first, other] = [first, other].map(|rank| mesh.name(rank));
            return Err(LaunchError::new(format!(
                "{first} is on {} in {}, and {other} on {} in {}: put all shards of a rank on the CPU or all \
                 on GPUs, in one number format",
                place.device, place.dtype, there.device, there.dtype
            ))
            .into());
        }
    }
    Ok(())
}

fn check_directions(schedule: &Schedule) -> Result<()> {
    match schedule.placement().directions() {
        1 => Ok(()),
        directions => Err(LaunchError::new(format!(
            "schedule {} goes in {directions} directions (placement {}); the engine trains schedules of one \
             direction: use dualpipe-v, which is similar",
            schedule.name(),
            schedule.placement()
        ))
        .into()),
    }
}

fn check_count(schedule: &Schedule, stages: usize) -> Result<()> {
    if schedule.stages() as usize == stages {
        return Ok(());
    }
    Err(LaunchError::new(format!(
        "the schedule has {} stages, the pipeline was given {stages}: split the model into as many as the \
         schedule has",
        schedule.stages()
    ))
    .into())
}
