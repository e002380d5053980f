//! A schedule as the engine runs it.

use crate::Result;
use crate::id::Rank;
use crate::schedule::{Action, Cell, Flow, Links, Pass, Schedule};

/// The schedule with every backward-weight where the engine runs it: weight gradients are added up in micro-batch order, so
/// one whose turn has not come waits until the one before it is done, and a backward in one piece falls into its halves. For
/// buffered links.
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
    let (placement, micro_batches) = (schedule.placement().clone(), schedule.micro_batches());
    let run = Schedule::from_passes(schedule.name(), placement.clone(), micro_batches, rows)?;
    let rows = (0..run.ranks())
        .map(|rank| sent_late(run.actions(Rank(rank))))
        .collect();
    Schedule::from_actions(schedule.name(), placement, micro_batches, rows, Links::Buffered).map(Some)
}

/// The gradient of a backward whose turn has come is sent after the backward-weights that waited for it: they belong to it.
fn sent_late(row: &[Action]) -> Vec<Action> {
    let mut late: Vec<Action> = Vec::new();
    let mut sent: Option<(Cell, Option<Action>)> = None;
    for &action in row {
        match (action, &mut sent) {
            (Action::Send(Flow::Gradient, cell), Some((backward, send))) if cell == *backward => {
                *send = Some(action);
                continue;
            }
            (Action::Recv(..), _) => {}
            (Action::Compute(Pass::BackwardWeight, cell), Some((backward, _)))
                if cell.stage == backward.stage => {}
            _ => {
                late.extend(sent.take().and_then(|(_, send)| send));
                if let Action::Compute(Pass::Backward, cell) = action {
                    sent = Some((cell, None));
                }
            }
        }
        late.push(action);
    }
    late.extend(sent.and_then(|(_, send)| send));
    late
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
