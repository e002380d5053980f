//! Which ranks NCCL connects.

use pipewright_stages::Device;

use super::ids::Members;
use crate::id::{Axis, WorldRank};
use crate::mesh::Mesh;

/// What NCCL connects. First, the pairs of ranks on GPUs of different processes between which a schedule
/// sends. All their ranks are members of one communicator. It may have two more members: ranks whose tied
/// parameters may need it. Second, a communicator for each group of ranks that hold the same stages in
/// several replicas, and for the shards of each rank.
#[derive(Debug, Default)]
pub struct GpuPairs {
    /// The sending and the receiving rank of each pair. Each pair is listed once.
    pairs: Vec<[WorldRank; 2]>,
    /// The members in rank order, and the GPU of each.
    members: Members,
    /// The groups: ranks with the same stages, by replica, and shards of a rank.
    groups: Vec<Members>,
}

impl GpuPairs {
    /// From pairs of a sending and a receiving rank. `pairs` may contain a pair several times.
    pub fn new(mut pairs: Vec<[WorldRank; 2]>, mesh: &Mesh) -> Self {
        pairs.sort_unstable();
        pairs.dedup();
        let mut ends = pairs.concat();
        ends.sort_unstable();
        ends.dedup();
        let members = ends.into_iter().map(|rank| (rank, mesh.place(rank).device));
        Self { members: members.collect(), pairs, groups: Vec::new() }
    }

    /// Adds two members, if there are pairs, and if no other rank of a new member's process uses NCCL on its
    /// GPU.
    pub(crate) fn with_members(mut self, new: [WorldRank; 2], mesh: &Mesh) -> Self {
        let device = |rank| mesh.place(rank).device;
        let is_free = |new: WorldRank| {
            let taken = |&(rank, of): &(WorldRank, Device)| {
                rank != new && mesh.process(rank) == mesh.process(new) && of == device(new)
            };
            device(new) != Device::Cpu && !self.members.iter().any(taken)
        };
        let far = mesh.process(new[0]) != mesh.process(new[1]);
        if far && !self.pairs.is_empty() && new.into_iter().all(is_free) {
            self.members.extend(new.map(|rank| (rank, device(rank))));
            self.members.sort_unstable_by_key(|member| member.0);
            self.members.dedup();
        }
        self
    }

    /// Adds the ranks that hold the same stages in several replicas, and the shards of each rank, where these
    /// are in several processes, and each has a GPU that no other rank of its process uses.
    pub fn with_groups(mut self, mesh: &Mesh) -> Self {
        let has_own_gpu = |&(rank, device): &(WorldRank, Device)| {
            let mut near = mesh.ranks_of(mesh.process(rank));
            device != Device::Cpu && !near.any(|other| other != rank && mesh.place(other).device == device)
        };
        for axis in [Axis::Data, Axis::Tensor] {
            for first in mesh.world().filter(|rank| mesh.group(axis, *rank).next() == Some(*rank)) {
                let ranks = mesh.group(axis, first);
                let members: Members = ranks.map(|rank| (rank, mesh.place(rank).device)).collect();
                let is_far = |&(rank, _): &(WorldRank, Device)| mesh.process(rank) != mesh.process(first);
                if members.iter().any(is_far) && members.iter().all(has_own_gpu) {
                    self.groups.push(members);
                }
            }
        }
        self
    }

    /// Whether there is nothing for NCCL to connect.
    pub(crate) fn is_empty(&self) -> bool {
        self.pairs.is_empty() && self.groups.is_empty()
    }

    /// The members of all communicators. The first one is the communicator of the pairs. It may have no
    /// members.
    pub(super) fn communicators(&self) -> Vec<&Members> {
        std::iter::once(&self.members).chain(&self.groups).collect()
    }

    /// Whether the schedule sends from one of the two to the other.
    pub(super) fn has(&self, pair: [WorldRank; 2]) -> bool {
        self.pairs.contains(&pair)
    }

    /// The ranks that a rank sends to (`0`) or receives from (`1`).
    pub(super) fn peers(&self, rank: WorldRank, end: usize) -> impl Iterator<Item = WorldRank> {
        let pairs = self.pairs.iter().filter(move |pair| pair[end] == rank);
        pairs.map(move |pair| pair[1 - end])
    }
}
