//! The checker's first part: are the actions exactly those that the placement calls for?

use crate::Result;
use crate::error::schedule::{ActionProblem, Advice, Problems, ScheduleError};
use crate::id::{MicroBatch, Rank, StageId};
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
    let set = Set {
        program,
        placement,
        expected,
    };
    let stray = program.places().filter_map(|place| set.stray(place));
    let twice = program
        .twice
        .iter()
        .map(|&(first, second)| set.twice(first, second));
    let missing = cells(placement.stages(), program.micro_batches()).flat_map(|cell| set.missing(cell));
    let steps = (0..placement.stages())
        .map(StageId)
        .filter_map(|stage| set.missing_step(stage));
    let reducing = if program.reduces() { placement.stages() } else { 0 };
    let unreduced = (0..reducing)
        .map(StageId)
        .filter_map(|stage| set.missing_reduction(stage));
    let late = program
        .rows()
        .iter()
        .zip((0..).map(Rank))
        .filter_map(|(row, rank)| after_step(row, rank));
    refuse(
        stray
            .chain(twice)
            .chain(missing)
            .chain(unreduced)
            .chain(steps)
            .chain(late),
    )
}

/// The problem of a rank that has an action after a step. At a step all ranks meet, with all their gradients.
fn after_step(row: &[Action], rank: Rank) -> Option<ActionProblem> {
    let is_step = |action: &Action| matches!(action, Action::Step(_));
    let first = row.iter().position(is_step)?;
    let (index, &action) = row
        .iter()
        .enumerate()
        .skip(first)
        .find(|(_, action)| !is_step(action))?;
    Some(ActionProblem::AfterStep {
        place: Place { rank, index, action }.named(),
        step: row[first].to_string(),
    })
}

fn refuse(mut problems: impl Iterator<Item = ActionProblem>) -> Result<()> {
    let named: Vec<_> = problems.by_ref().take(NAMED).collect();
    if named.is_empty() {
        return Ok(());
    }
    let more = problems.count();
    Err(ScheduleError::Actions(Problems { named, more }).into())
}

struct Set<'a> {
    program: &'a Program<'a>,
    placement: &'a Placement,
    expected: Expected,
}

impl Set<'_> {
    /// The problem of an action that must not be here.
    fn stray(&self, at: Place) -> Option<ActionProblem> {
        let (stage, place) = (at.action.stage(), || at.named());
        let Some(home) = self.placement.rank(stage) else {
            return Some(ActionProblem::NoSuchStage {
                place: place(),
                stage,
                last: StageId(self.placement.stages() - 1),
            });
        };
        let micro_batches = self.program.micro_batches();
        if let Some(cell) = at.action.cell()
            && cell.micro_batch.0 >= micro_batches
        {
            return Some(ActionProblem::NoSuchMicroBatch {
                place: place(),
                micro_batch: cell.micro_batch,
                last: MicroBatch(micro_batches - 1),
            });
        }
        if home != at.rank {
            let place = place();
            return Some(ActionProblem::WrongRank { place, stage, home });
        }
        let is_called_for = match at.action {
            Action::Send(flow, cell) => self.placement.crosses(flow, cell.stage),
            Action::Recv(flow, cell) => flow
                .before(cell.stage)
                .is_some_and(|from| self.placement.crosses(flow, from)),
            Action::Compute(..) | Action::Reduce(_) | Action::Step(_) => true,
        };
        (!is_called_for).then(|| ActionProblem::NoNeighbour {
            place: place(),
            stage,
        })
    }

    fn twice(&self, first: u32, second: u32) -> ActionProblem {
        let (first, second) = (self.program.place(first), self.program.place(second));
        let same = first.action == second.action;
        let (first, second) = (first.named(), second.named());
        match same {
            true => ActionProblem::Repeated { first, second },
            false => ActionProblem::SameGradient { first, second },
        }
    }

    fn missing(&self, cell: Cell) -> Vec<ActionProblem> {
        let found = |kind| self.program.find(kind, cell) != NONE;
        let mut missing = Vec::new();
        if !found(ActionKind::Forward) {
            missing.push(self.lacks(Action::Compute(Pass::Forward, cell), Advice::None));
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
    fn missing_backward(&self, cell: Cell) -> Option<ActionProblem> {
        let compute = |pass| Action::Compute(pass, cell);
        let (input, weight) = (compute(Pass::BackwardInput), compute(Pass::BackwardWeight));
        let both = compute(Pass::Backward);
        let backward = self.program.find(ActionKind::Backward, cell);
        let backward = (backward != NONE).then(|| self.program.place(backward).action);
        let weight_at = self.program.find(ActionKind::Weight, cell);
        match (backward, weight_at != NONE) {
            (None, false) => {
                let halves = Advice::OrHalves(input.to_string(), weight.to_string());
                Some(self.lacks(both, halves))
            }
            (None, true) => Some(self.lacks(input, Advice::NeededBy(weight.to_string()))),
            (Some(action), false) if action == input => {
                let (backward, input) = (both.to_string(), input.to_string());
                Some(self.lacks(weight, Advice::OrWhole { backward, input }))
            }
            (Some(action), true) if action == both => Some(ActionProblem::SameWeightGradient {
                place: self.program.place(weight_at).named(),
                backward: both.to_string(),
                input: input.to_string(),
            }),
            _ => None,
        }
    }

    /// The problems of this cell's output: its send and its receive, where they are missing.
    fn missing_transfers(&self, flow: Flow, cell: Cell) -> impl Iterator<Item = ActionProblem> {
        let send = self
            .placement
            .crosses(flow, cell.stage)
            .then_some(Action::Send(flow, cell));
        let ends = [send, send.and_then(Action::partner)].into_iter().flatten();
        ends.filter(|&end| {
            end.partner()
                .is_some_and(|other| self.program.partner(other) == NONE)
        })
        .map(|end| self.lacks(end, Advice::None))
    }

    fn missing_reduction(&self, stage: StageId) -> Option<ActionProblem> {
        let missing = self.program.reduction(stage) == NONE;
        missing.then(|| self.lacks(Action::Reduce(stage), Advice::OthersReduce))
    }

    fn missing_step(&self, stage: StageId) -> Option<ActionProblem> {
        let missing = self.expected == Expected::Actions && self.program.step(stage) == NONE;
        missing.then(|| self.lacks(Action::Step(stage), Advice::None))
    }

    fn lacks(&self, action: Action, advice: Advice) -> ActionProblem {
        let rank = self
            .placement
            .rank(action.stage())
            .expect("only actions of the placement's stages are missed");
        ActionProblem::Missing {
            rank,
            action: action.to_string(),
            advice,
        }
    }
}
