//! A schedule as the engine runs it.

use crate::Result;
use crate::id::Rank;
use crate::schedule::{Cell, Pass, Schedule};

/// The schedule with every backward-weight where the engine runs it: weight gradients are added up in micro-batch order, so
/// one whose turn has not come waits until the one before it is done, and a backward in one piece falls into its halves.
/// `None` when the schedule has that order already.
///
/// # Errors
/// None that is known: what was in order stays in order.
pub fn as_run(schedule: &Schedule) -> Result<Option<Schedule>> {
    let ranks = (0..schedule.ranks()).map(Rank);
    let rows: Vec<Vec<(Pass, Cell)>> = ranks.clone().map(|rank| in_turn(schedule, rank)).collect();
    let same = ranks
        .zip(&rows)
        .all(|(rank, row)| schedule.passes(rank).eq(row.iter().copied()));
    if same {
        return Ok(None);
    }
    let placement = schedule.placement().clone();
    Schedule::from_passes(schedule.name(), placement, schedule.micro_batches(), rows).map(Some)
}

fn in_turn(schedule: &Schedule, rank: Rank) -> Vec<(Pass, Cell)> {
    let mut next = vec![0; schedule.stages() as usize];
    let mut waiting: Vec<Cell> = Vec::new();
    let mut row = Vec::new();
    for (pass, cell) in schedule.passes(rank) {
        let stage = cell.stage.index();
        match pass {
            Pass::Forward | Pass::BackwardInput => {
                row.push((pass, cell));
                continue;
            }
            Pass::Backward | Pass::BackwardWeight if next[stage] == cell.micro_batch.0 => {
                row.push((pass, cell))
            }
            Pass::Backward => {
                row.push((Pass::BackwardInput, cell));
                waiting.push(cell);
                continue;
            }
            Pass::BackwardWeight => {
                waiting.push(cell);
                continue;
            }
        }
        next[stage] += 1;
        let due = |next: u32| move |held: &Cell| held.stage == cell.stage && held.micro_batch.0 == next;
        while let Some(place) = waiting.iter().position(due(next[stage])) {
            row.push((Pass::BackwardWeight, waiting.swap_remove(place)));
            next[stage] += 1;
        }
    }
    row
}
