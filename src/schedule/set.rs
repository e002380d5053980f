//! The checker's first step: are the actions exactly those that the placement calls for?

use crate::id::{Rank, StageId};
use crate::schedule::program::{NONE, Place, Program, Slot, cells};
use crate::schedule::{Action, Cell, Flow, Pass, Placement};
use crate::{Error, Result};

/// How many problems one message names.
const NAMED: usize = 3;

/// Refuses actions that are missing, repeated, on the wrong rank or not called for.
pub(super) fn check_set(program: &Program<'_>, placement: &Placement, lowered: bool) -> Result<()> {
    let set = Set {
        program,
        placement,
        lowered,
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
    let unreduced = (0..placement.stages())
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

/// What is wrong with a rank that goes on after a step: a step is where all ranks meet, with all their gradients.
fn after_step(row: &[Action], rank: Rank) -> Option<String> {
    let is_step = |action: &Action| matches!(action, Action::Step(_));
    let first = row.iter().position(is_step)?;
    let (behind, action) = row
        .iter()
        .enumerate()
        .skip(first)
        .find(|(_, action)| !is_step(action))?;
    let step = row[first];
    Some(format!(
        "rank {rank}, action {behind} ({action}) comes after {step}; put the steps at the end of the rank's list"
    ))
}

fn refuse(mut problems: impl Iterator<Item = String>) -> Result<()> {
    let named: Vec<_> = problems.by_ref().take(NAMED).collect();
    let more = problems.count();
    match (named.len(), more) {
        (0, _) => Ok(()),
        (1, _) => Err(Error::Invalid(named.concat())),
        (_, 0) => Err(Error::Invalid(format!(
            "{} problems:\n  {}",
            named.len(),
            named.join("\n  ")
        ))),
        _ => Err(Error::Invalid(format!(
            "{} problems:\n  {}\n  and {more} more",
            named.len() + more,
            named.join("\n  ")
        ))),
    }
}

struct Set<'a> {
    program: &'a Program<'a>,
    placement: &'a Placement,
    lowered: bool,
}

impl Set<'_> {
    /// What is wrong with an action that should not stand here.
    fn stray(&self, place: Place) -> Option<String> {
        let stage = place.action.stage();
        let Some(home) = self.placement.rank(stage) else {
            let last = self.placement.stages() - 1;
            return Some(format!(
                "{place}: there is no stage {stage}, only 0 to {last}; remove the cell"
            ));
        };
        let micro_batches = self.program.micro_batches();
        if let Some(cell) = place.action.cell()
            && cell.micro_batch.0 >= micro_batches
        {
            let number = cell.micro_batch;
            let last = micro_batches - 1;
            return Some(format!(
                "{place}: there is no micro-batch {number}, only 0 to {last}; remove the cell"
            ));
        }
        if home != place.rank {
            return Some(format!(
                "{place}: stage {stage} lives on rank {home}; move the cell there"
            ));
        }
        let travels = match place.action {
            Action::Send(flow, cell) => self.placement.crosses(flow, cell.stage),
            Action::Recv(flow, cell) => flow
                .before(cell.stage)
                .is_some_and(|from| self.placement.crosses(flow, from)),
            Action::Compute(..) | Action::Reduce(_) | Action::Step(_) => true,
        };
        (!travels).then(|| {
            format!(
                "{place}: stage {stage} has no neighbour on another rank on that side; remove the transfer"
            )
        })
    }

    fn twice(&self, first: u32, second: u32) -> String {
        let (first, second) = (self.program.place(first), self.program.place(second));
        if first.action == second.action {
            return format!(
                "{second} stands at action {} of rank {} already; remove one",
                first.index, first.rank
            );
        }
        format!("{second} and {first} make the same gradient; keep either B, or I and W")
    }

    fn missing(&self, cell: Cell) -> Vec<String> {
        let found = |slot| self.program.find(slot, cell) != NONE;
        let compute = |pass| Action::Compute(pass, cell);
        let mut missing = Vec::new();
        if !found(Slot::Forward) {
            missing.push(self.lacks(compute(Pass::Forward)));
        }
        let (input, weight) = (compute(Pass::BackwardInput), compute(Pass::BackwardWeight));
        let both = compute(Pass::Backward);
        let backward = self.program.find(Slot::Backward, cell);
        let backward = (backward != NONE).then(|| self.program.place(backward).action);
        match (backward, found(Slot::Weight)) {
            (None, false) => missing.push(format!("{} (or {input} and {weight})", self.lacks(both))),
            (None, true) => missing.push(format!("{}, which {weight} needs", self.lacks(input))),
            (Some(action), false) if action == input => {
                missing.push(format!("{}, or write {both} for {input}", self.lacks(weight)));
            }
            (Some(action), true) if action == both => {
                let at = self.program.place(self.program.find(Slot::Weight, cell));
                missing.push(format!(
                    "{at}: {both} makes the weight gradient already; remove it or write {input}"
                ));
            }
            _ => {}
        }
        if self.lowered {
            missing.extend(
                [Flow::Activation, Flow::Gradient]
                    .into_iter()
                    .flat_map(|flow| self.missing_transfers(flow, cell)),
            );
        }
        missing
    }

    /// The send and the receive of this cell's output, as far as they are missing.
    fn missing_transfers(&self, flow: Flow, cell: Cell) -> impl Iterator<Item = String> {
        let send = self
            .placement
            .crosses(flow, cell.stage)
            .then_some(Action::Send(flow, cell));
        let ends = [send, send.and_then(Action::partner)].into_iter().flatten();
        ends.filter(|&end| {
            end.partner()
                .is_some_and(|other| self.program.partner(other) == NONE)
        })
        .map(|end| self.lacks(end))
    }

    fn missing_reduction(&self, stage: StageId) -> Option<String> {
        let missing = self.program.reduces() && self.program.reduction(stage) == NONE;
        missing.then(|| {
            format!(
                "{}, though other stages have a reduction; give each stage one, or none",
                self.lacks(Action::Reduce(stage))
            )
        })
    }

    fn missing_step(&self, stage: StageId) -> Option<String> {
        let missing = self.lowered && self.program.step(stage) == NONE;
        missing.then(|| self.lacks(Action::Step(stage)))
    }

    fn lacks(&self, action: Action) -> String {
        let rank = self
            .placement
            .rank(action.stage())
            .expect("only actions of the placement's stages are missed");
        format!("rank {rank} lacks {action}")
    }
}
