//! What each of this process's ranks has under a schedule: its stages and its data.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use pipewright_stages::Stage;

use crate::data::{Feed, Loader};
use crate::error::Result;
use crate::id::{Rank, StageId, WorldRank};
use crate::mesh::Mesh;
use crate::pipeline::spec::SharedBuilder;
use crate::schedule::Placement;
use crate::worker::{Duty, Plan};

/// The duties of these ranks of this process, in order, and the loaders of the replicas and shards whose data
/// one of them needs.
pub(in crate::pipeline) fn duties<S: Stage>(
    plan: &Plan,
    stages: &[SharedBuilder<S>],
    ranks: impl Iterator<Item = WorldRank>,
) -> Result<(Vec<Loader>, Vec<Duty<S>>)> {
    let ranks: Vec<WorldRank> = ranks.collect();
    let mut loaders = Vec::new();
    let feeds = dealt(&plan.mesh, plan.placement(), &ranks, |replica| {
        let share = plan.groups.share(replica, plan.replicas());
        let (loader, inputs, targets) = Loader::start(Arc::clone(&plan.data), share)?;
        loaders.push(loader);
        Ok([inputs, targets])
    })?;
    let builder = |stage: StageId| (stage, stages[stage.index()].for_rank());
    let duty = |(rank, [inputs, targets]): (WorldRank, [Option<Feed>; 2])| {
        let held = Held::of(plan.mesh.coordinate(rank).rank, plan.placement());
        Duty { stages: held.stages.into_iter().map(builder).collect(), inputs, targets }
    };
    Ok((loaders, ranks.into_iter().zip(feeds).map(duty).collect()))
}

/// The feeds of these ranks: of inputs, and of targets. `start` makes both for a replica and a shard of it,
/// if one of these ranks needs them.
fn dealt<F>(
    mesh: &Mesh,
    placement: &Placement,
    ranks: &[WorldRank],
    mut start: impl FnMut(u32) -> Result<[F; 2]>,
) -> Result<Vec<[Option<F>; 2]>> {
    // By replica and shard, until a rank takes them.
    let mut started: BTreeMap<[u32; 2], [Option<F>; 2]> = BTreeMap::new();
    let mut deal = |rank: &WorldRank| {
        let at = mesh.coordinate(*rank);
        let held = Held::of(at.rank, placement);
        if !held.takes_data() {
            return Ok([None, None]);
        }
        let [inputs, targets] = match started.entry([at.replica, at.shard]) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(start(at.replica)?.map(Some)),
        };
        Ok([inputs.take_if(|_| held.takes_inputs), targets.take_if(|_| held.takes_targets)])
    };
    ranks.iter().map(&mut deal).collect()
}

/// What a rank holds. It depends only on the place in the pipeline, so it is the same in every replica and
/// shard.
#[derive(Debug)]
struct Held {
    /// The stages, in order.
    stages: Vec<StageId>,
    /// Whether it has the first stage, which needs inputs.
    takes_inputs: bool,
    /// Whether it has the last stage, which needs targets.
    takes_targets: bool,
}

impl Held {
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

    /// A rank, what it holds, and its feeds: the number of the replica stands for each.
    type Dealt = (Rank, Held, [Option<u32>; 2]);

    #[test]
    fn every_replica_and_shard_has_each_stage_and_the_data_once() {
        for placement in [Placement::looped(3, 1), Placement::looped(3, 2), Placement::vee(3)] {
            let placement = placement.expect("three ranks");
            for processes in [1, 2, 3, 4, 6, 12] {
                let mesh = Mesh::new([2, 3, 2], processes, &[]).expect("an even share");
                let mut pipelines: BTreeMap<_, Vec<Dealt>> = BTreeMap::new();
                for process in 0..processes {
                    let ranks: Vec<_> = mesh.ranks_of(process).collect();
                    let mut started = 0;
                    let feeds = dealt(&mesh, &placement, &ranks, |replica| {
                        started += 1;
                        Ok([replica; 2])
                    });
                    for (rank, feeds) in ranks.iter().zip(feeds.expect("they start")) {
                        let at = mesh.coordinate(*rank);
                        let held = Held::of(at.rank, &placement);
                        let all = pipelines.entry((at.replica, at.shard)).or_default();
                        all.push((at.rank, held, feeds));
                    }
                    assert!(started <= 4, "one for a replica and a shard");
                }
                assert_eq!(pipelines.len(), 4, "two replicas of two shards");
                for ((replica, _), all) in &pipelines {
                    check(*replica, all, &placement);
                }
            }
        }
    }

    /// Each stage is on its rank in the placement. The rank of the first one has inputs, and the rank of the
    /// last one has targets.
    fn check(replica: u32, all: &[Dealt], placement: &Placement) {
        let stages = all.iter().flat_map(|(rank, held, _)| held.stages.iter().map(|&stage| (stage, *rank)));
        let mut stages: Vec<_> = stages.collect();
        stages.sort();
        let placed: Vec<_> = (0..).map(StageId).zip(placement.iter()).collect();
        assert_eq!(stages, placed);
        let ends = [StageId(0), StageId(placement.stages() - 1)].map(|stage| placement.rank(stage));
        for (rank, _, feeds) in all {
            assert_eq!(*feeds, ends.map(|end| (end == Some(*rank)).then_some(replica)), "{rank}");
        }
    }
}
