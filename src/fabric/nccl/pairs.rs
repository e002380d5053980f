//! Which ranks NCCL connects.

use pipewright_stages::Device;
use pipewright_stages::devices::Library;
use pipewright_stages::nccl::UniqueId;

use crate::error::{FabricError, Result};
use crate::id::WorldRank;
use crate::mesh::Mesh;

/// The pairs of ranks on GPUs of different processes between which a schedule sends. All their ranks are
/// members of one communicator. It may have two more members: ranks whose tied parameters may need it.
#[derive(Debug, Default)]
pub struct GpuPairs {
    /// The sending and the receiving rank of each pair. Each pair is listed once.
    pairs: Vec<[WorldRank; 2]>,
    /// The members in rank order, and the GPU of each.
    members: Vec<(WorldRank, Device)>,
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
        Self {
            members: members.collect(),
            pairs,
        }
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
        if far && !self.is_empty() && new.into_iter().all(is_free) {
            self.members.extend(new.map(|rank| (rank, device(rank))));
            self.members.sort_unstable_by_key(|member| member.0);
            self.members.dedup();
        }
        self
    }

    /// Whether there is nothing for NCCL to connect.
    pub(crate) fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// The number of ranks in the communicator.
    pub(super) fn count(&self) -> u32 {
        self.members.len() as u32
    }

    /// A rank's number in the communicator.
    pub(super) fn number(&self, rank: WorldRank) -> Option<u32> {
        let found = self.members.iter().position(|(member, _)| *member == rank);
        found.map(|number| number as u32)
    }

    /// The GPU of the member with this number.
    pub(super) fn device(&self, number: u32) -> Device {
        self.members[number as usize].1
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

    /// The communicator's id. The process of the first member makes it. All processes call this with their
    /// own ranks. `share` gives every process's block to all.
    pub(super) fn id(
        &self,
        own: &[WorldRank],
        share: impl FnOnce(Result<Vec<u8>>) -> Result<Vec<Vec<u8>>>,
    ) -> Result<UniqueId> {
        let blocks = share(self.own_part(own))?;
        let bytes = blocks.concat().try_into().map_err(|_| {
            let gives = |(process, block): (u32, &Vec<u8>)| (!block.is_empty()).then_some(process);
            FabricError::NcclDiffers {
                givers: (0..).zip(&blocks).filter_map(gives).collect(),
            }
        })?;
        Ok(UniqueId::from_bytes(bytes))
    }

    fn own_part(&self, own: &[WorldRank]) -> Result<Vec<u8>> {
        let mut seen: Vec<(WorldRank, Device)> = Vec::new();
        for &(rank, device) in self.members.iter().filter(|(rank, _)| own.contains(rank)) {
            if let Some((other, _)) = seen.iter().find(|(_, taken)| *taken == device) {
                let ranks = [*other, rank];
                return Err(FabricError::SharedGpu { ranks, device }.into());
            }
            seen.push((rank, device));
        }
        if !seen.is_empty() {
            Library::Driver.require()?;
        }
        match (seen.first(), self.members.first()) {
            (None, _) => Ok(Vec::new()),
            (mine, first) if mine == first => Ok(UniqueId::make()?.to_bytes().to_vec()),
            _ => Ok(Library::Nccl.require().map(|()| Vec::new())?),
        }
    }
}
