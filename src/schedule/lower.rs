//! Puts sends, receives and steps between compute passes.

use crate::id::Rank;
use crate::schedule::deadlock::Deadlock;
use crate::schedule::program::Program;
use crate::schedule::replay::{Event, Links, Replay};
use crate::schedule::{Action, Cell, Placement};

/// The passes of `program` with the transfers that `placement` calls for, and each stage's step at the end of
/// its rank's list.
///
/// A replay of the passes yields one order for all ranks. Each transfer is put into both its lists at the
/// moment its pass is done, so the two lists hold their transfers in that one order, and ordered links cannot
/// lock. The rounds of the replay make it the order that PyTorch's lowering gives.
pub(super) fn lower(
    program: &Program<'_>,
    placement: &Placement,
) -> std::result::Result<Vec<Vec<Action>>, Deadlock> {
    let mut rows: Vec<_> = program
        .rows()
        .iter()
        .map(|row| Vec::with_capacity(3 * row.len() + 1))
        .collect();
    Replay::new(program, Links::Buffered).run(|event| {
        if let Event::Ran { rank, action, .. } = event {
            rows[rank].push(action);
            if let Some((send, recv, to)) = transfer(action, placement) {
                rows[rank].push(send);
                rows[to.index()].push(recv);
            }
        }
    })?;
    add_steps(&mut rows, placement);
    Ok(rows)
}

/// Appends each stage's step to its rank's list.
pub(super) fn add_steps(rows: &mut [Vec<Action>], placement: &Placement) {
    for (rank, row) in (0..).map(Rank).zip(rows) {
        row.extend(placement.stages_on(rank).map(Action::Step));
    }
}

/// The send and the receive that follow this action, and the receiver.
fn transfer(action: Action, placement: &Placement) -> Option<(Action, Action, Rank)> {
    let Action::Compute(pass, cell) = action else {
        return None;
    };
    let flow = pass
        .output()
        .filter(|&flow| placement.crosses(flow, cell.stage))?;
    let stage = flow.after(cell.stage)?;
    Some((
        Action::Send(flow, cell),
        Action::Recv(flow, Cell { stage, ..cell }),
        placement.rank(stage)?,
    ))
}
