//! What a schedule's ranks hold, whatever their stages cost: memory follows from order alone.

use crate::id::Rank;
use crate::schedule::{Pass, Schedule, StageCost};

/// For each rank, the moments of a step at which it may hold the most: how many micro-batches of each of its stages are held then.
#[derive(Clone, Debug)]
pub(super) struct Holding {
    ranks: Vec<Vec<Moment>>,
}

/// How much of each stage is held at one moment: stage, saved, pending.
type Moment = Vec<(usize, u32, u32)>;

impl Holding {
    pub(super) fn of(schedule: &Schedule) -> Self {
        Self {
            ranks: (0..schedule.ranks())
                .map(|rank| moments(schedule, Rank(rank)))
                .collect(),
        }
    }

    /// The most bytes that a rank holds; stages that have no cost yet hold nothing.
    pub(super) fn peak(&self, rank: usize, stages: &[StageCost]) -> f64 {
        let bytes = |&(stage, saved, pending): &(usize, u32, u32)| {
            let cost = stages.get(stage);
            cost.map_or(0.0, |cost| {
                f64::from(saved) * cost.saved + f64::from(pending) * cost.pending
            })
        };
        let moments = self.ranks[rank].iter();
        moments
            .map(|moment| moment.iter().map(bytes).sum())
            .fold(0.0, f64::max)
    }
}

/// The moments of a rank at which not less of everything is held than at another.
fn moments(schedule: &Schedule, rank: Rank) -> Vec<Moment> {
    let mut now: Moment = schedule
        .placement()
        .stages_on(rank)
        .map(|stage| (stage.index(), 0, 0))
        .collect();
    let mut moments: Vec<Moment> = Vec::new();
    for (pass, cell) in schedule.passes(rank) {
        let held = now
            .iter_mut()
            .find(|held| held.0 == cell.stage.index())
            .expect("checked: the stage is on this rank");
        match pass {
            Pass::Forward => held.1 += 1,
            Pass::Backward => held.1 -= 1,
            Pass::BackwardInput => (held.1, held.2) = (held.1 - 1, held.2 + 1),
            Pass::BackwardWeight => held.2 -= 1,
        }
        if !moments.iter().any(|other| within(&now, other)) {
            moments.retain(|other| !within(other, &now));
            moments.push(now.clone());
        }
    }
    moments
}

/// Whether no more of anything is held at one moment than at another.
fn within(one: &Moment, other: &Moment) -> bool {
    one.iter()
        .zip(other)
        .all(|(one, other)| one.1 <= other.1 && one.2 <= other.2)
}
