//! What each rank of the mesh holds: stages, data, the loss.

use crate::id::{Rank, StageId, WorldRank};
use crate::mesh::Mesh;
use crate::schedule::Placement;

/// What a rank holds. It depends only on the place in the pipeline, so it is the same in every replica and
/// shard.
#[derive(Debug)]
pub(super) struct Seat {
    /// The place in the pipeline.
    pub(super) rank: Rank,
    /// The stages, in order.
    pub(super) stages: Vec<StageId>,
    /// Whether it has the first stage, which needs inputs.
    pub(super) takes_inputs: bool,
    /// Whether it has the last stage, which needs targets and the loss.
    pub(super) has_loss: bool,
}

impl Seat {
    /// What this rank holds under this placement.
    pub(super) fn of(rank: WorldRank, mesh: &Mesh, placement: &Placement) -> Self {
        let rank = mesh.coordinate(rank).rank;
        let stages: Vec<StageId> = placement.stages_on(rank).collect();
        Self {
            rank,
            takes_inputs: stages.contains(&StageId(0)),
            has_loss: stages.contains(&StageId(placement.stages() - 1)),
            stages,
        }
    }

    /// Whether it needs inputs or targets.
    pub(super) fn takes_data(&self) -> bool {
        self.takes_inputs || self.has_loss
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use crate::id::StageId;
    use crate::mesh::Mesh;
    use crate::pipeline::launch::seat::Seat;
    use crate::schedule::Placement;

    #[test]
    fn every_replica_and_shard_has_each_stage_the_data_and_the_loss_once() {
        for placement in [
            Placement::looped(3, 1),
            Placement::looped(3, 2),
            Placement::vee(3),
        ] {
            let placement = placement.expect("three ranks");
            for processes in [1, 2, 3, 4, 6, 12] {
                let mesh = Mesh::new([2, 3, 2], processes, &[]).expect("an even share");
                let mut pipelines: BTreeMap<_, Vec<Seat>> = BTreeMap::new();
                for rank in (0..processes).flat_map(|process| mesh.ranks_of(process)) {
                    let at = mesh.coordinate(rank);
                    let seat = Seat::of(rank, &mesh, &placement);
                    assert_eq!(seat.rank, at.rank);
                    pipelines.entry((at.replica, at.shard)).or_default().push(seat);
                }
                assert_eq!(pipelines.len(), 4, "two replicas of two shards");
                for seats in pipelines.values() {
                    check(seats, &placement);
                }
            }
        }
    }

    /// Each stage is on its rank in the placement. One rank takes inputs, and one has the loss.
    fn check(seats: &[Seat], placement: &Placement) {
        let mut stages: Vec<_> = seats
            .iter()
            .flat_map(|seat| seat.stages.iter().map(|&stage| (stage, seat.rank)))
            .collect();
        stages.sort();
        let placed: Vec<_> = (0..).map(StageId).zip(placement.iter()).collect();
        assert_eq!(stages, placed);
        let first: Vec<_> = seats.iter().filter(|seat| seat.takes_inputs).collect();
        let last: Vec<_> = seats.iter().filter(|seat| seat.has_loss).collect();
        assert!(
            matches!((&first[..], &last[..]), ([first], [last])
                if Some(first.rank) == placement.rank(StageId(0))
                    && Some(last.rank) == placement.rank(StageId(placement.stages() - 1))),
            "{seats:?}"
        );
    }
}
