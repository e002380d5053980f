//! The links between the hosts of a run and inside of them.

use crate::mesh::Map;
use crate::plan::LinkCost;

/// The hosts of a run and what messages cost there. World ranks fill one host after the other, as many on
/// each. A [`Map`] says which ranks have consecutive numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cluster {
    /// How many hosts there are.
    pub hosts: u32,
    /// A message between two ranks of one host.
    pub inside: LinkCost,
    /// A message between ranks of two hosts. `None`: as inside of a host.
    pub between: Option<LinkCost>,
    /// Seconds to add a byte of gradients to a sum.
    pub add: f64,
}

impl Cluster {
    /// Whether transfers go between hosts, for so many replicas of so many ranks: as soon as a pipeline has
    /// ranks on two.
    pub fn parts_pipelines(&self, map: Map, replicas: u32, ranks: u32) -> bool {
        let on = |replica, rank| self.host(map, [replicas, ranks], [replica, rank]);
        (0..replicas).any(|replica| on(replica, 0) != on(replica, ranks - 1))
    }

    /// Whether reductions go between hosts, for so many replicas of so many ranks: as soon as the replicas of
    /// a stage are on two.
    pub fn parts_replicas(&self, map: Map, replicas: u32, ranks: u32) -> bool {
        let on = |replica, rank| self.host(map, [replicas, ranks], [replica, rank]);
        (0..ranks).any(|rank| on(0, rank) != on(replicas - 1, rank))
    }

    /// The link of transfers, for so many replicas of so many ranks.
    pub fn of_transfers(&self, map: Map, replicas: u32, ranks: u32) -> LinkCost {
        self.link(self.parts_pipelines(map, replicas, ranks))
    }

    /// The link of reductions, for so many replicas of so many ranks.
    pub fn of_reductions(&self, map: Map, replicas: u32, ranks: u32) -> LinkCost {
        self.link(self.parts_replicas(map, replicas, ranks))
    }

    fn link(&self, crosses: bool) -> LinkCost {
        match crosses {
            true => self.between.unwrap_or(self.inside),
            false => self.inside,
        }
    }

    fn host(&self, map: Map, [replicas, ranks]: [u32; 2], [replica, rank]: [u32; 2]) -> u32 {
        let world_rank = match map {
            Map::Pipeline => replica * ranks + rank,
            Map::Replicas => rank * replicas + replica,
        };
        world_rank / (replicas * ranks).div_ceil(self.hosts.max(1)).max(1)
    }
}
