//! The checker's first part: are the actions exactly those that the placement calls for?

use crate::Result;
use crate::error::ScheduleError;
use crate::id::{Rank, StageId};
use crate::schedule::program::{ActionKind, NONE, Place, Program, cells};
use crate::schedule::{Action, Cell, Flow, Pass, Placement};

/// How many problems one message names.
const NAMED: usize = 3;

/// The actions that the lists must have.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Expected {
    /// The forward pass of every cell, and nothing else.
    Forwards,
    /// The forward and backward passes of every cell.
    Passes,
    /// The same, with all transfers and steps.
    Actions,
}

/// Refuses actions that are missing, repeated, on the wrong rank or not called for.
pub(super) fn check_set(program: &Program<'_>, placement: &Placement, expected: Expected) -> Result<()> {
    let set = Set { program, placement, expected };
    let stray = program.places().filter_map(|place| set.stray(place));
    let twice = program.twice.iter().map(|&(first, second)| set.twice(first, second));
    let missing = cells(placement.stages(), program.micro_batches()).flat_map(|cell| set.missing(cell));
    let steps = (0..placement.stages()).map(StageId).filter_map(|stage| set.missing_step(stage));
    let reducing = if program.reduces() { placement.stages() } else { 0 };
    let unreduced = (0..reducing).map(StageId).filter_map(|stage| set.missing_reduction(stage));
    let late = program.rows().iter().zip((0..).map(Rank)).filter_map(|(row, rank)| after_step(row, rank));
    refuse(stray.chain(twice).chain(missing).chain(unreduced).chain(steps).chain(late))
}

/// The problem of a rank that has an action after a step. At a step all ranks meet, with all their gradients.
fn after_step(row: &[Action], rank: Rank) -> Option<String> {
    let is_step = |action: &Action| matches!(action, Action::Step(_));
    let first = row.iter().position(is_step)?;
    let (index, &action) = row.iter().enumerate().skip(first).find(|(_, action)| !is_step(action))?;
    Some(format!(
        "{} comes after {}; put the steps at the end of the rank's list",
        Place { rank, index, action }.named(),
        row[first]
    ))
}

fn refuse(mut problems: impl Iterator<Item = String>) -> Result<()> {
    let named: Vec<_> = problems.by_ref().take(NAMED).collect();
    let more = problems.count();
    let text = match (&named[..], more) {
        ([], _) => return Ok(()),
        ([only], 0) => only.clone(),
        (named, 0) => format!("{} problems:\n  {}", named.len(), named.join("\n  ")),
        (named, more) => {
            format!("{} problems:\n  {}\n  and {more} more", named.len() + more, named.join("\n  "))
        }
    };
    Err(ScheduleError::new(text).into())
}

struct Set<'a> {
    program: &'a Program<'a>,
    placement: &'a Placement,
    expected: Expected,
}

impl Set<'_> {
    /// The problem of an action that must not be here.
    fn stray(&self, at: Place) -> Option<String> {
        let (stage, place) = (at.action.stage(), || at.named());
        let Some(home) = self.placement.rank(stage) else {
            return Some(format!(
                "{}: there is no stage {stage}, only 0 to {}; remove the action",
                place(),
                self.placement.stages() - 1
            ));
        };
        let micro_batches = self.program.micro_batches();
        if let Some(cell) = at.action.cell()
            && cell.micro_batch.0 >= micro_batches
        {
            return Some(format!(
                "{}: there is no micro-batch {}, only 0 to {}; remove the action",
                place(),
                cell.micro_batch,
                micro_batches - 1
            ));
        }
        if home != at.rank {
            return Some(format!("{}: stage {stage} is on rank {home}; move the action there", place()));
        }
        let is_called_for = match at.action {
            Action::Send(flow, cell) => self.placement.crosses(flow, cell.stage),
            Action::Recv(flow, cell) => {
                flow.before(cell.stage).is_some_and(|from| self.placement.crosses(flow, from))
            }
            Action::Compute(..) | Action::Reduce(_) | Action::Step(_) => true,
        };
        (!is_called_for).then(|| {
            format!(
                "{}: stage {stage} has no neighbour on another rank on that side; remove the transfer",
                place()
            )
        })
    }

    fn twice(&self, first: u32, second: u32) -> String {
        let (first, second) = (self.program.place(first), self.program.place(second));
        let same = first.action == second.action;
        let (first, second) = (first.named(), second.named());
        match same {
            true => {
                format!("{second} is at action {} of rank {} already; remove one", first.index, first.rank)
            }
            false => format!("{second} and {first} make the same gradient; keep either B, or I and W"),
        }
    }

    fn missing(&self, cell: Cell) -> Vec<String> {
        let found = |kind| self.program.find(kind, cell) != NONE;
        let mut missing = Vec::new();
        if !found(ActionKind::Forward) {
            missing.push(self.lacks(Action::Compute(Pass::Forward, cell), ""));
        }
        if self.expected == Expected::Forwards {
            return missing;
        }
        missing.extend(self.missing_backward(cell));
        if self.expected == Expected::Actions {
            missing.extend(
                [Flow::Activation, Flow::Gradient]
                    .into_iter()
                    .flat_map(|flow| self.missing_transfers(flow, cell)),
            );
        }
        missing
    }

    /// What this cell's backward lacks, or has too much: it is whole, or two halves.
    fn missing_backward(&self, cell: Cell) -> Option<String> {
        let compute = |pass| Action::Compute(pass, cell);
        let (input, weight) = (compute(Pass::BackwardInput), compute(Pass::BackwardWeight));
        let both = compute(Pass::Backward);
        let backward = self.program.find(ActionKind::Backward, cell);
        let backward = (backward != NONE).then(|| self.program.place(backward).action);
        let weight_at = self.program.find(ActionKind::Weight, cell);
        match (backward, weight_at != NONE) {
            (None, false) => Some(self.lacks(both, &format!(" (or {input} and {weight})"))),
            (None, true) => Some(self.lacks(input, &format!(", which {weight} needs"))),
            (Some(action), false) if action == input => {
                Some(self.lacks(weight, &format!(", or write {both} for {input}")))
            }
            (Some(action), true) if action == both => Some(format!(
                "{}: {both} makes the weight gradient already; remove it or write {input}",
                self.program.place(weight_at).named()
            )),
            _ => None,
        }
    }

    /// The problems of this cell's output: its send and its receive, where they are missing.
    fn missing_transfers(&self, flow: Flow, cell: Cell) -> impl Iterator<Item = String> {
        let send = self.placement.crosses(flow, cell.stage).then_some(Action::Send(flow, cell));
        let ends = [send, send.and_then(Action::partner)].into_iter().flatten();
        ends.filter(|&end| end.partner().is_some_and(|other| self.program.partner(other) == NONE))
            .map(|end| self.lacks(end, ""))
    }

    fn missing_reduction(&self, stage: StageId) -> Option<String> {
        let missing = self.program.reduction(stage) == NONE;
        missing.then(|| {
            self.lacks(
                Action::Reduce(stage),
                ", though other stages have a reduction; give each stage one, or none",
            )
        })
    }

    fn missing_step(&self, stage: StageId) -> Option<String> {
        let missing = self.expected == Expected::Actions && self.program.step(stage) == NONE;
        missing.then(|| self.lacks(Action::Step(stage), ""))
    }

    /// The problem of an action that is missing, with advice behind it.
    fn lacks(&self, action: Action, advice: &str) -> String {
        let rank =
            self.placement.rank(action.stage()).expect("only actions of the placement's stages are missed");
        format!("rank {rank} lacks {action}{advice}")
    }
}
