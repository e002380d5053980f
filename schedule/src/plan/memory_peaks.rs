//! What the ranks of a schedule hold at which moment. It follows from the order of the actions alone. So it
//! is found once and then used with the costs of many cuts.

use crate::id::Rank;
use crate::plan::StageCost;
use crate::schedule::{Cell, MoveStep, Pass, Schedule};

/// For each rank, the moments of a step at which its memory may peak. A moment is a list: one entry for each
/// stage of the rank.
#[derive(Clone, Debug)]
pub(super) struct Holding {
    ranks: Vec<Vec<Moment>>,
}

type Moment = Vec<Held>;

/// What one stage holds at one moment.
#[derive(Clone, Copy, Debug)]
struct Held {
    stage: usize,
    saved: u32,
    pending: u32,
    /// How many of those that are saved are on the host.
    away: u32,
    /// Whether its backward-input or whole backward is running, which may hold recomputed activations.
    restored: bool,
}

impl Holding {
    pub(super) fn of(schedule: &Schedule) -> Self {
        Self { ranks: (0..schedule.ranks()).map(|rank| moments(schedule, Rank(rank))).collect() }
    }

    /// The most bytes that a rank holds, by the costs of the stages. Those without a cost yet count as 0.
    pub(super) fn peak<'a>(&self, rank: usize, cost_of: impl Fn(usize) -> Option<&'a StageCost>) -> f64 {
        let bytes = |held: &Held| {
            cost_of(held.stage).map_or(0.0, |cost| {
                let restored = if held.restored { cost.restored } else { 0.0 };
                cost.held(held.saved, held.pending, held.away) + restored
            })
        };
        let moments = self.ranks[rank].iter();
        moments.map(|moment| moment.iter().map(bytes).sum()).fold(0.0, f64::max)
    }
}

/// The moments at which a rank's memory may peak. A moment is left out when another one holds at least as
/// much of everything.
fn moments(schedule: &Schedule, rank: Rank) -> Vec<Moment> {
    let mut now: Moment = schedule
        .placement()
        .stages_on(rank)
        .map(|stage| Held { stage: stage.index(), saved: 0, pending: 0, away: 0, restored: false })
        .collect();
    let mut moments: Vec<Moment> = Vec::new();
    let position = |now: &Moment, cell: Cell| {
        let at = now.iter().position(|held| held.stage == cell.stage.index());
        at.expect("checked: the stage is on this rank")
    };
    let mut moves = schedule.moves(rank).into_iter().peekable();
    for (index, (pass, cell)) in schedule.passes(rank).enumerate() {
        while let Some(next) = moves.next_if(|next| next.before <= index) {
            let at = position(&now, next.cell);
            match next.step {
                MoveStep::Free => now[at].away += 1,
                MoveStep::Out => {}
                MoveStep::Back => now[at].away -= 1,
            }
        }
        let at = position(&now, cell);
        if matches!(pass, Pass::Backward | Pass::BackwardInput) {
            now[at].restored = true;
            add(&mut moments, &now);
            now[at].restored = false;
        }
        let held = &mut now[at];
        match pass {
            Pass::Forward => held.saved += 1,
            Pass::Backward => held.saved -= 1,
            Pass::BackwardInput => (held.saved, held.pending) = (held.saved - 1, held.pending + 1),
            Pass::BackwardWeight => held.pending -= 1,
        }
        add(&mut moments, &now);
    }
    moments
}

fn add(moments: &mut Vec<Moment>, now: &Moment) {
    if !moments.iter().any(|other| within(now, other)) {
        moments.retain(|other| !within(other, now));
        moments.push(now.clone());
    }
}

/// Whether every stage holds at most as much at one moment as at the other.
fn within(one: &Moment, other: &Moment) -> bool {
    let within = |(one, other): (&Held, &Held)| {
        one.saved - one.away <= other.saved - other.away
            && one.saved <= other.saved
            && one.pending <= other.pending
            && one.restored <= other.restored
    };
    one.iter().zip(other).all(within)
}
