//! Inserts sends, receives, reductions and steps between compute passes.

use crate::Result;
use std::collections::BTreeMap;

use crate::id::{Rank, StageId};
use crate::schedule::program::Program;
use crate::schedule::replay::{Event, Replay};
use crate::schedule::{Action, Cell, LinkKind, Pass, Placement};

/// Adds the transfers that `placement` calls for to the passes and reductions of `program`.
///
/// A replay of the passes gives one order for all ranks. Each transfer enters both its lists when its pass is
/// done. So the two lists hold their transfers in the same order, and ordered links cannot lock. The replay
/// goes in rounds, so the order is the same as in PyTorch's lowering.
pub(super) fn lower(program: &Program<'_>, placement: &Placement) -> Result<Vec<Vec<Action>>> {
    let mut rows: Vec<_> = program.rows().iter().map(|row| Vec::with_capacity(3 * row.len() + 1)).collect();
    Replay::new(program, LinkKind::Buffered).run(|event| {
        if let Event::Ran { rank, action, .. } = event {
            rows[rank].push(action);
            if let Some((send, recv, to)) = transfer(action, placement) {
                rows[rank].push(send);
                rows[to.index()].push(recv);
            }
        }
    })?;
    Ok(rows)
}

/// Appends each stage's step to its rank's list.
pub(super) fn add_steps(rows: &mut [Vec<Action>], placement: &Placement) {
    for (stage, rank) in (0..).map(StageId).zip(placement.iter()) {
        rows[rank.index()].push(Action::Step(stage));
    }
}

/// Puts each stage's reduction behind its last backward-weight and behind the sends that follow it: other
/// ranks wait for those sends. A stage without micro-batches has its reduction before its step.
pub(super) fn add_reductions(rows: &mut [Vec<Action>]) {
    for row in rows {
        let mut last = BTreeMap::new();
        for (index, action) in row.iter().enumerate() {
            if let Action::Compute(Pass::Backward | Pass::BackwardWeight, cell) = action {
                last.insert(cell.stage, index);
            }
        }
        let mut last: Vec<(usize, StageId)> = last.into_iter().map(|(stage, index)| (index, stage)).collect();
        last.sort();
        // From the back, so that earlier indices stay valid.
        for (index, stage) in last.into_iter().rev() {
            let is_send = |action: &&Action| matches!(action, Action::Send(..));
            let sends = row[index + 1..].iter().take_while(is_send).count();
            row.insert(index + 1 + sends, Action::Reduce(stage));
        }
        let is_step = |action: &Action| matches!(action, Action::Step(_));
        let first_step = row.iter().position(is_step).unwrap_or(row.len());
        let reduced = |stage| row.contains(&Action::Reduce(stage));
        let idle = row[first_step..].iter().map(|action| action.stage());
        let idle: Vec<Action> = idle.filter(|&stage| !reduced(stage)).map(Action::Reduce).collect();
        row.splice(first_step..first_step, idle);
    }
}

/// The send and the receive that follow this action, and the receiver.
fn transfer(action: Action, placement: &Placement) -> Option<(Action, Action, Rank)> {
    let Action::Compute(pass, cell) = action else {
        return None;
    };
    let flow = pass.output().filter(|&flow| placement.crosses(flow, cell.stage))?;
    let stage = flow.after(cell.stage)?;
    Some((Action::Send(flow, cell), Action::Recv(flow, Cell { stage, ..cell }), placement.rank(stage)?))
}
