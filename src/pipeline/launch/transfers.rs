//! What a pipeline asks of its fabrics: room for transfers, and which of them go between GPUs.

use std::sync::Arc;

use pipewright_stages::Device;

use crate::error::{FabricError, Problem, Result};
use crate::fabric::{GpuPairs, NO_LIMIT};
use crate::id::{Rank, StageId, WorldRank};
use crate::mesh::{Coordinate, Mesh};
use crate::schedule::{Action, Flow, LinkKind, Schedule};
use crate::worker::{Plan, WINDOW};

/// How many wires and blocks can be on the way to a rank at once: the wires of a step or of an evaluation,
/// and what each peer may send before it receives an answer (for a tied parameter, for the sum of a stage's
/// gradients over replicas, for the end of a step, for its own end). Where weights may be stale, nothing is
/// answered, and a rank whose step is done takes nothing: there is no limit but staleness.
pub(super) fn room(plan: &Plan) -> usize {
    if plan.max_staleness() > 0 {
        return NO_LIMIT;
    }
    let receives = |schedule: &Schedule, rank| {
        let actions = schedule.actions(rank).iter();
        actions.filter(|action| matches!(action, Action::Recv(..))).count()
    };
    let ranks = |schedule: &Arc<Schedule>| (0..schedule.ranks()).map(Rank);
    let steps =
        plan.schedules.iter().flat_map(|schedule| ranks(schedule).map(|rank| receives(schedule, rank)));
    let evaluation = 4 * plan.placement().stages() as usize;
    let most = steps.max().unwrap_or(0).max(evaluation);
    let chunks = plan.placement().chunks().into_iter().max().unwrap_or(1) as usize;
    let others = plan.replicas() as usize - 1;
    // A shard can be one exchange ahead of another.
    let of_team = 2 * (plan.shards() as usize - 1);
    // A rank can be nearly a step ahead of another, and tells it the losses and the step before.
    let ahead = if plan.barrier { 0 } else { most + 2 * plan.mesh.world_size() as usize };
    most + ahead + of_team + 4 * plan.mesh.world_size() as usize + 3 * WINDOW * chunks * others
}

/// The ranks on GPUs of different processes that NCCL connects: those between which the schedule sends, and
/// those that hold the same stages in several replicas, and shards of a rank.
///
/// # Errors
/// When the ordered links of NCCL would let the schedule deadlock.
pub(super) fn between_gpus(schedules: &[Arc<Schedule>], mesh: &Mesh) -> Result<GpuPairs> {
    let on_gpu = |rank: WorldRank| mesh.place(rank).device != Device::Cpu;
    let mut pairs = Vec::new();
    for from in mesh.world() {
        let at = mesh.coordinate(from);
        let schedule = &schedules[at.replica as usize];
        let world_rank = |rank| mesh.world_rank(Coordinate { rank, ..at });
        let actions = schedule.actions(at.rank).iter();
        let receivers = actions.filter_map(|action| receiver(schedule, *action)).map(world_rank);
        let far = receivers.filter(|&to| mesh.process(from) != mesh.process(to));
        pairs.extend(far.filter(|&to| on_gpu(from) && on_gpu(to)).map(|to| [from, to]));
    }
    let mut gpus = GpuPairs::new(pairs, mesh);
    // The first and the last stage often share tied parameters.
    let schedule = &schedules[0];
    let ends = [StageId(0), schedule.last_stage()].map(|stage| schedule.rank_of(stage));
    for at in mesh.world().map(|rank| mesh.coordinate(rank)).filter(|at| at.rank == ends[0]) {
        gpus = gpus.with_members(ends.map(|rank| mesh.world_rank(Coordinate { rank, ..at })), mesh);
    }
    gpus = gpus.with_groups(mesh);
    // A trade too is queued after all receives that were announced before.
    if !gpus.is_empty() {
        let mut all = schedules.iter();
        let ordered = all.try_for_each(|schedule| schedule.holds_on(LinkKind::Ordered));
        ordered.map_err(|error| {
            FabricError::Refused(Problem::because(
                format!("between GPUs of several processes transfers go one after the other: {error}"),
                error,
            ))
        })?;
    }
    Ok(gpus)
}

/// The rank that receives a send.
fn receiver(schedule: &Schedule, action: Action) -> Option<Rank> {
    let Action::Send(flow, cell) = action else {
        return None;
    };
    let stage = match flow {
        Flow::Activation => cell.stage.0 + 1,
        Flow::Gradient => cell.stage.0 - 1,
    };
    Some(schedule.rank_of(StageId(stage)))
}
