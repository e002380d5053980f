//! A rank's replica among the others: what it adds up, and with whom.

use std::ops::Range;

use crate::groups::{GradientGroups, Node, Sums};
use crate::id::{Axis, MicroBatch, WorldRank};
use crate::worker::partials::AfterGroup;
use crate::worker::plan::Plan;

/// A replica's share of each batch, and the ranks that hold the same stages in other replicas.
#[derive(Debug)]
pub(in crate::worker) struct ReplicaShare {
    groups: GradientGroups,
    pub(in crate::worker) replica: u32,
    /// The ranks with the same stages, by replica.
    ranks: Vec<WorldRank>,
}

impl ReplicaShare {
    /// The share of this rank's replica.
    pub(in crate::worker) fn new(plan: &Plan, rank: WorldRank) -> Self {
        Self {
            groups: plan.groups,
            replica: plan.mesh.coordinate(rank).replica,
            ranks: plan.mesh.group(Axis::Data, rank).collect(),
        }
    }

    /// How many replicas there are.
    pub(in crate::worker) fn replicas(&self) -> u32 {
        self.ranks.len() as u32
    }

    /// The rank with the same stages in another replica.
    pub(in crate::worker) fn rank(&self, replica: u32) -> WorldRank {
        self.ranks[replica as usize]
    }

    /// All other replicas.
    pub(in crate::worker) fn others(&self) -> impl Iterator<Item = u32> + use<> {
        let own = self.replica;
        (0..self.replicas()).filter(move |&replica| replica != own)
    }

    fn own_groups(&self) -> Range<u32> {
        self.groups.of_replica(self.replica, self.replicas())
    }

    /// The micro-batches of each of its groups, by their numbers in the batch.
    pub(in crate::worker) fn micro_batches_of_groups(&self) -> impl Iterator<Item = Range<u32>> + use<> {
        let groups = self.groups;
        self.own_groups().map(move |group| groups.micro_batches_of(group..group + 1))
    }

    /// The number of the share's first micro-batch in the batch.
    pub(in crate::worker) fn first(&self) -> u32 {
        self.groups.micro_batches_of(self.own_groups()).start
    }

    /// The group of a micro-batch.
    pub(in crate::worker) fn group(&self, micro_batch: MicroBatch) -> u32 {
        self.groups.of(micro_batch.0)
    }

    /// The group that ends with this micro-batch, and what follows it on this replica.
    pub(in crate::worker) fn ends_group(&self, micro_batch: MicroBatch) -> Option<(u32, AfterGroup)> {
        if !self.groups.ends_with(micro_batch.0) {
            return None;
        }
        let group = self.group(micro_batch);
        let next = match group + 1 {
            after if after < self.own_groups().end => AfterGroup::Group,
            _ if self.replicas() > 1 => AfterGroup::Replicas,
            _ => AfterGroup::Nothing,
        };
        Some((group, next))
    }

    /// The sums that a replica makes of its own groups, in order.
    pub(super) fn nodes_of(&self, replica: u32) -> Vec<Node> {
        let mut sums = Sums::default();
        for group in self.groups.of_replica(replica, self.replicas()) {
            sums.push(Node::of_group(group), (), |(), ()| ());
        }
        sums.nodes().iter().map(|(node, ())| *node).collect()
    }
}
