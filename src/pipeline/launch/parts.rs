//! What each of this process's ranks has under a schedule: its stages and its data.

use std::collections::BTreeMap;
use std::sync::Arc;

use pipewright_stages::Stage;

use crate::data::{Feed, Loader};
use crate::error::Result;
use crate::id::{Rank, StageId, WorldRank};
use crate::pipeline::spec::SharedBuilder;
use crate::schedule::Placement;
use crate::worker::{Part, Plan};

/// The parts of these ranks of this process, in order, and the loaders of the replicas and shards whose data
/// one of them needs.
pub(in crate::pipeline) fn parts<S: Stage>(
    plan: &Plan,
    stages: &[SharedBuilder<S>],
    ranks: impl Iterator<Item = WorldRank>,
) -> Result<(Vec<Loader>, Vec<Part<S>>)> {
    let mut loaders = Vec::new();
    // The inputs and the targets of each replica and shard, until a rank takes them.
    let mut feeds: BTreeMap<[u32; 2], [Option<Feed>; 2]> = BTreeMap::new();
    let builder = |stage: StageId| (stage, stages[stage.index()].for_rank());
    let mut parts = Vec::new();
    for rank in ranks {
        let at = plan.mesh.coordinate(rank);
        let (duties, pipeline) = (Duties::of(at.rank, plan.placement()), [at.replica, at.shard]);
        if duties.takes_data() && !feeds.contains_key(&pipeline) {
            let share = plan.groups.share(at.replica, plan.replicas());
            let (loader, inputs, targets) = Loader::start(Arc::clone(&plan.data), share)?;
            loaders.push(loader);
            feeds.insert(pipeline, [inputs, targets].map(Some));
        }
        let [inputs, targets] = feeds.entry(pipeline).or_default();
        parts.push(Part {
            stages: duties.stages.iter().copied().map(builder).collect(),
            inputs: inputs.take_if(|_| duties.takes_inputs),
            targets: targets.take_if(|_| duties.takes_targets),
        });
    }
    Ok((loaders, parts))
}

/// What a rank holds. It depends only on the place in the pipeline, so it is the same in every replica and
/// shard.
#[derive(Debug)]
struct Duties {
    /// The stages, in order.
    stages: Vec<StageId>,
    /// Whether it has the first stage, which needs inputs.
    takes_inputs: bool,
    /// Whether it has the last stage, which needs targets.
    takes_targets: bool,
}

impl Duties {
    /// What this rank of the pipeline holds under this placement.
    fn of(rank: Rank, placement: &Placement) -> Self {
        let stages: Vec<StageId> = placement.stages_on(rank).collect();
        Self {
            takes_inputs: stages.contains(&StageId(0)),
            takes_targets: stages.contains(&StageId(placement.stages() - 1)),
            stages,
        }
    }

    /// Whether it needs inputs or targets.
    fn takes_data(&self) -> bool {
        self.takes_inputs || self.takes_targets
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::mesh::Mesh;

    #[test]
    fn every_replica_and_shard_has_each_stage_and_the_data_once() {
        for placement in [Placement::looped(3, 1), Placement::looped(3, 2), Placement::vee(3)] {
            let placement = placement.expect("three ranks");
            for processes in [1, 2, 3, 4, 6, 12] {
                let mesh = Mesh::new([2, 3, 2], processes, &[]).expect("an even share");
                let mut pipelines: BTreeMap<_, Vec<(Rank, Duties)>> = BTreeMap::new();
                for rank in (0..processes).flat_map(|process| mesh.ranks_of(process)) {
                    let at = mesh.coordinate(rank);
                    let duties = Duties::of(at.rank, &placement);
                    pipelines.entry((at.replica, at.shard)).or_default().push((at.rank, duties));
                }
                assert_eq!(pipelines.len(), 4, "two replicas of two shards");
                for all in pipelines.values() {
                    check(all, &placement);
                }
            }
        }
    }

    /// Each stage is on its rank in the placement. One rank takes inputs, and one takes targets.
    fn check(all: &[(Rank, Duties)], placement: &Placement) {
        let mut stages: Vec<_> =
            all.iter().flat_map(|(rank, duties)| duties.stages.iter().map(|&stage| (stage, *rank))).collect();
        stages.sort();
        let placed: Vec<_> = (0..).map(StageId).zip(placement.iter()).collect();
        assert_eq!(stages, placed);
        let first: Vec<_> = all.iter().filter(|(_, duties)| duties.takes_inputs).collect();
        let last: Vec<_> = all.iter().filter(|(_, duties)| duties.takes_targets).collect();
        assert!(
            matches!((&first[..], &last[..]), ([first], [last])
                if Some(first.0) == placement.rank(StageId(0))
                    && Some(last.0) == placement.rank(StageId(placement.stages() - 1))),
            "{all:?}"
        );
    }
}
