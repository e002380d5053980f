//! What a schedule asks of the links between its ranks.

use pipewright_stages::{Device, Place};

use crate::error::{Error, Result};
use crate::fabric::GpuLinks;
use crate::id::{Rank, StageId};
use crate::schedule::{Action, Flow, Links, Schedule};

/// How many wires and blocks can be on the way to a rank at once: a step's wires, or an evaluation's, and from each peer what it
/// says before it hears again, of a tied parameter, of the step's end, of its own end.
pub(super) fn room(schedule: &Schedule) -> usize {
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

/// The links between GPUs of different processes, when each of these has so many consecutive ranks.
///
/// # Errors
/// When the schedule was judged on links that are easier than these.
pub(super) fn between_gpus(schedule: &Schedule, places: &[Place], ranks_each: u32) -> Result<GpuLinks> {
    let on_gpu = |rank: Rank| places[rank.index()].device != Device::Cpu;
    let mut links = Vec::new();
    for rank in (0..schedule.ranks()).map(Rank) {
        let peers = schedule
            .actions(rank)
            .iter()
            .filter_map(|action| receiver(schedule, *action));
        let far = peers.filter(|peer| peer.0 / ranks_each != rank.0 / ranks_each);
        links.extend(
            far.filter(|&peer| on_gpu(rank) && on_gpu(peer))
                .map(|peer| [rank, peer]),
        );
    }
    if !links.is_empty() {
        schedule.holds_on(Links::Ordered).map_err(|error| {
            Error::Invalid(format!(
                "between GPUs of several processes transfers go one after the other: {error}"
            ))
        })?;
    }
    // The ends of a model are often tied.
    let ends = [StageId(0), schedule.last_stage()].map(|stage| schedule.rank_of(stage));
    Ok(GpuLinks::new(links, places).with_guests(ends, places, ranks_each))
}

/// The rank that a send goes to.
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
