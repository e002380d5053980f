//! How the messages that a rank sends share its link.

use crate::plan::{Queue, StageCost};
use crate::schedule::{Action, Pass, Program};

/// What the ranks have sent so far in a run of a schedule.
pub(super) struct Sent {
    queue: Queue,
    ranks: Vec<Link>,
    /// What [`soon`] says, by action. Empty if reductions take no link of a transfer.
    soon: Vec<Option<[f64; 2]>>,
}

/// The link of a rank.
#[derive(Clone, Copy, Default)]
struct Link {
    /// When all its transfers have left.
    transfers: f64,
    /// When all its messages have.
    all: f64,
}

impl Sent {
    pub(super) fn new(queue: Queue, program: &Program<'_>, stages: &[StageCost]) -> Self {
        Self {
            queue,
            ranks: vec![Link::default(); program.rows().len()],
            soon: match queue.reductions && queue.transfer > 0.0 {
                true => program.rows().iter().flat_map(|row| soon(row, stages)).collect(),
                false => Vec::new(),
            },
        }
    }

    /// A rank sends a transfer, which is this action, at this time. Returns when it
    /// starts, if it goes on without a pause from then.
    pub(super) fn transfer(&mut self, rank: usize, id: usize, now: f64) -> f64 {
        let Queue { transfer, .. } = self.queue;
        let link = &mut self.ranks[rank];
        let start = link.transfers.max(now);
        // Until the reductions have gone it has half of the link.
        let after_all = link.all.max(now) + transfer;
        let mut end = after_all.clamp(start + transfer, start + 2.0 * transfer);
        if let Some(Some([until, reduce])) = self.soon.get(id) {
            // A reduction that starts before the transfer has left slows what is left of it.
            end += (end - (now + until)).clamp(0.0, *reduce);
        }
        link.transfers = end;
        link.all = after_all.max(link.all);
        end - transfer
    }

    /// A rank starts a reduction of this time. Returns when it starts, if it goes on without a pause from
    /// then.
    pub(super) fn reduction(&mut self, rank: usize, time: f64, now: f64) -> f64 {
        if !self.queue.reductions {
            return now;
        }
        let link = &mut self.ranks[rank];
        let start = link.all.max(now);
        link.all = start + time;
        start
    }
}

/// For each action of a rank: the time of the passes until its next reduction, and the time of that. `None`
/// if one of these passes may wait.
fn soon(row: &[Action], stages: &[StageCost]) -> Vec<Option<[f64; 2]>> {
    let mut next: Option<[f64; 2]> = None;
    let mut times: Vec<_> = row
        .iter()
        .rev()
        .map(|action| {
            match *action {
                Action::Reduce(stage) => next = Some([0.0, stages[stage.index()].reduce]),
                Action::Compute(Pass::BackwardWeight, cell) => {
                    if let Some([until, _]) = &mut next {
                        *until += stages[cell.stage.index()].backward_weight;
                    }
                }
                // It may wait for a wire, so nobody knows when the reduction starts.
                Action::Compute(..) => next = None,
                Action::Send(..) | Action::Recv(..) | Action::Step(_) => {}
            }
            next
        })
        .collect();
    times.reverse();
    times
}
