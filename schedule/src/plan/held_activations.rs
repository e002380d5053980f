//! What ranks hold for later backwards, counted in micro-batches. Counts are exact: no rounding errors add up
//! over a step.

use crate::plan::StageCost;
use crate::schedule::{Pass, Placement};

/// What each rank holds.
#[derive(Clone, Debug)]
pub(crate) struct HeldActivations {
    /// For each stage, its rank and its group there. Stages of one rank that hold the same amount share a
    /// group.
    group: Vec<(usize, usize)>,
    ranks: Vec<Vec<Group>>,
}

#[derive(Clone, Debug)]
struct Group {
    cost: StageCost,
    saved: u32,
    pending: u32,
    /// How many of those that are saved are on the host.
    away: u32,
}

impl HeldActivations {
    /// Nothing is held yet.
    pub(crate) fn new(placement: &Placement, stages: &[StageCost]) -> Self {
        let of = |cost: &StageCost| (cost.saved, cost.stays, cost.pending);
        let mut ranks = vec![Vec::<Group>::new(); placement.ranks() as usize];
        let mut place = |(rank, cost): (usize, &StageCost)| {
            let groups = &mut ranks[rank];
            let same = |group: &Group| of(&group.cost) == of(cost);
            let at = groups.iter().position(same).unwrap_or(groups.len());
            if at == groups.len() {
                groups.push(Group { cost: *cost, saved: 0, pending: 0, away: 0 });
            }
            (rank, at)
        };
        let group = placement.iter().zip(stages);
        let group = group.map(|(rank, cost)| place((rank.index(), cost))).collect();
        Self { group, ranks }
    }

    /// Sets everything back to empty.
    pub(crate) fn clear(&mut self) {
        for group in self.ranks.iter_mut().flatten() {
            (group.saved, group.pending, group.away) = (0, 0, 0);
        }
    }

    /// Counts one more of this pass for this stage.
    pub(crate) fn count(&mut self, stage: usize, pass: Pass) {
        let (rank, at) = self.group[stage];
        let group = &mut self.ranks[rank][at];
        match pass {
            Pass::Forward => group.saved += 1,
            Pass::Backward => group.saved -= 1,
            Pass::BackwardInput => (group.saved, group.pending) = (group.saved - 1, group.pending + 1),
            Pass::BackwardWeight => group.pending -= 1,
        }
    }

    /// Counts one more, or one less, that this stage has on the host.
    pub(crate) fn count_away(&mut self, stage: usize, leaves: bool) {
        let (rank, at) = self.group[stage];
        let away = &mut self.ranks[rank][at].away;
        match leaves {
            true => *away += 1,
            false => *away -= 1,
        }
    }

    /// What this rank holds now.
    pub(crate) fn held(&self, rank: usize) -> f64 {
        let groups = self.ranks[rank].iter();
        groups.map(|group| group.cost.held(group.saved, group.pending, group.away)).sum()
    }
}
