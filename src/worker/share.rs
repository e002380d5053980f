//! A rank's replica among the others: what it adds up, and with whom.

use std::ops::Range;

use super::partials::Next;
use crate::groups::{Groups, Node, Sums};
use crate::id::{Axis, MicroBatch, WorldRank};
use crate::mesh::Mesh;

/// A replica's share of each batch, and the ranks that hold the same stages in other replicas.
#[derive(Debug)]
pub(super) struct Share {
    groups: Groups,
    pub(super) replica: u32,
    /// The ranks with the same stages, by replica.
    ranks: Vec<WorldRank>,
}

impl Share {
    /// The share of this rank's replica.
    pub(super) fn new(groups: Groups, mesh: &Mesh, rank: WorldRank) -> Self {
        Self {
            groups,
            replica: mesh.coordinate(rank).replica,
            ranks: mesh.group(Axis::Data, rank).collect(),
        }
    }

    /// How many replicas there are.
    pub(super) fn replicas(&self) -> u32 {
        self.ranks.len() as u32
    }

    /// How many micro-batches the batch has, over all replicas.
    pub(super) fn micro_batches(&self) -> u32 {
        self.groups.micro_batches()
    }

    /// The rank with the same stages in another replica.
    pub(super) fn rank(&self, replica: u32) -> WorldRank {
        self.ranks[replica as usize]
    }

    /// All other replicas.
    pub(super) fn others(&self) -> impl Iterator<Item = u32> + use<> {
        let own = self.replica;
        (0..self.replicas()).filter(move |&replica| replica != own)
    }

    fn own_groups(&self) -> Range<u32> {
        self.groups.of_replica(self.replica, self.replicas())
    }

    /// The number of the share's first micro-batch in the batch.
    pub(super) fn first(&self) -> u32 {
        self.groups.micro_batches_of(self.own_groups()).start
    }

    /// The group of a micro-batch.
    pub(super) fn group(&self, micro_batch: MicroBatch) -> u32 {
        self.groups.of(micro_batch.0)
    }

    /// The group that ends with this micro-batch, and what follows it on this replica.
    pub(super) fn ends_group(&self, micro_batch: MicroBatch) -> Option<(u32, Next)> {
        if !self.groups.ends_with(micro_batch.0) {
            return None;
        }
        let group = self.group(micro_batch);
        let next = match group + 1 {
            after if after < self.own_groups().end => Next::Group,
            _ if self.replicas() > 1 => Next::Replicas,
            _ => Next::Nothing,
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

/// How far the exchange of new weights with one replica has come, in buckets.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Exchanged {
    pub(super) sent: usize,
    pub(super) received: usize,
}
