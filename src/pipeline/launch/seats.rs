//! What each of this process's ranks has for itself: its end, stages, data and loss.

use std::sync::Arc;

use pipewright_stages::Stage;

use crate::actor::Ranks;
use crate::data::{Feed, Loader};
use crate::error::Result;
use crate::fabric::{Recorded, Transport};
use crate::id::{Rank, StageId, WorldRank};
use crate::pipeline::spec::{Ends, Spec};
use crate::schedule::Placement;
use crate::worker::{Plan, Seat};

/// The seats of this process's ranks, and the loaders of the replicas whose data a rank here needs.
pub(super) fn seats<S: Stage>(
    spec: &Spec<S>,
    plan: &Plan,
    ranks: &Ranks<S>,
    ends: Ends<S::Wire>,
) -> Result<(Vec<Loader>, Vec<Seat<S>>)> {
    let place = |rank: WorldRank| {
        let at = plan.mesh.coordinate(rank);
        (Duties::of(at.rank, plan.placement()), at.replica)
    };
    let mut feeds = Feeds::default();
    for end in &ends {
        let (duties, replica) = place(end.rank());
        if duties.takes_data() && !feeds.has(replica) {
            let share = plan.groups.share(replica, plan.replicas());
            feeds.add(replica, Loader::start(Arc::clone(&plan.data), share)?);
        }
    }
    let builder = |stage: StageId| (stage, spec.stages[stage.index()].for_rank());
    let seat = |transport: Box<dyn Transport<S::Wire> + Send>| {
        let rank = transport.rank();
        let (duties, replica) = place(rank);
        Seat {
            progress: ranks.progress(rank),
            transport: match spec.copy {
                Some(copy) => Box::new(Recorded::new(transport, copy)),
                None => transport,
            },
            stages: duties.stages.iter().copied().map(builder).collect(),
            loss: spec.loss.as_ref().filter(|_| duties.has_loss).map(|loss| loss()),
            inputs: duties.takes_inputs.then(|| feeds.inputs(replica)).flatten(),
            targets: duties.has_loss.then(|| feeds.targets(replica)).flatten(),
        }
    };
    let seats = ends.into_iter().map(seat).collect();
    Ok((feeds.loaders, seats))
}

/// What a rank holds. It depends only on the place in the pipeline, so it is the same in every replica and
/// shard.
#[derive(Debug)]
struct Duties {
    /// The stages, in order.
    stages: Vec<StageId>,
    /// Whether it has the first stage, which needs inputs.
    takes_inputs: bool,
    /// Whether it has the last stage, which needs targets and the loss.
    has_loss: bool,
}

impl Duties {
    /// What this rank of the pipeline holds under this placement.
    fn of(rank: Rank, placement: &Placement) -> Self {
        let stages: Vec<StageId> = placement.stages_on(rank).collect();
        Self {
            takes_inputs: stages.contains(&StageId(0)),
            has_loss: stages.contains(&StageId(placement.stages() - 1)),
            stages,
        }
    }

    /// Whether it needs inputs or targets.
    fn takes_data(&self) -> bool {
        self.takes_inputs || self.has_loss
    }
}

/// The loaders of this process's replicas, and the feeds that no rank has taken yet.
#[derive(Default)]
struct Feeds {
    loaders: Vec<Loader>,
    waiting: Vec<Waiting>,
}

struct Waiting {
    replica: u32,
    inputs: Option<Feed>,
    targets: Option<Feed>,
}

impl Feeds {
    /// Whether a replica has a loader.
    fn has(&self, replica: u32) -> bool {
        self.waiting.iter().any(|feeds| feeds.replica == replica)
    }

    /// Adds the loader of a replica, with its feeds of inputs and of targets.
    fn add(&mut self, replica: u32, (loader, inputs, targets): (Loader, Feed, Feed)) {
        self.loaders.push(loader);
        self.waiting.push(Waiting {
            replica,
            inputs: Some(inputs),
            targets: Some(targets),
        });
    }

    /// The inputs of a replica, for the rank that takes them.
    fn inputs(&mut self, replica: u32) -> Option<Feed> {
        self.of(replica)?.inputs.take()
    }

    /// The targets of a replica, for the rank that takes them.
    fn targets(&mut self, replica: u32) -> Option<Feed> {
        self.of(replica)?.targets.take()
    }

    fn of(&mut self, replica: u32) -> Option<&mut Waiting> {
        self.waiting.iter_mut().find(|feeds| feeds.replica == replica)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::mesh::Mesh;

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
                let mut pipelines: BTreeMap<_, Vec<(Rank, Duties)>> = BTreeMap::new();
                for rank in (0..processes).flat_map(|process| mesh.ranks_of(process)) {
                    let at = mesh.coordinate(rank);
                    let duties = Duties::of(at.rank, &placement);
                    pipelines
                        .entry((at.replica, at.shard))
                        .or_default()
                        .push((at.rank, duties));
                }
                assert_eq!(pipelines.len(), 4, "two replicas of two shards");
                for all in pipelines.values() {
                    check(all, &placement);
                }
            }
        }
    }

    /// Each stage is on its rank in the placement. One rank takes inputs, and one has the loss.
    fn check(all: &[(Rank, Duties)], placement: &Placement) {
        let mut stages: Vec<_> = all
            .iter()
            .flat_map(|(rank, duties)| duties.stages.iter().map(|&stage| (stage, *rank)))
            .collect();
        stages.sort();
        let placed: Vec<_> = (0..).map(StageId).zip(placement.iter()).collect();
        assert_eq!(stages, placed);
        let first: Vec<_> = all.iter().filter(|(_, duties)| duties.takes_inputs).collect();
        let last: Vec<_> = all.iter().filter(|(_, duties)| duties.has_loss).collect();
        assert!(
            matches!((&first[..], &last[..]), ([first], [last])
                if Some(first.0) == placement.rank(StageId(0))
                    && Some(last.0) == placement.rank(StageId(placement.stages() - 1))),
            "{all:?}"
        );
    }
}
