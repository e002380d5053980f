//! The links between the hosts of a run and inside of them.

use std::collections::HashMap;

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
    /// A message between ranks of two hosts, if no other rank of the host sends. `None`: as inside of a host.
    pub between: Option<LinkCost>,
    /// Seconds to add a byte of gradients to a sum.
    pub add: f64,
}

impl Cluster {
    /// Whether transfers go between hosts, for `replicas` replicas of `ranks` ranks: as soon as a pipeline
    /// has ranks on two.
    pub fn parts_pipelines(&self, map: Map, replicas: u32, ranks: u32) -> bool {
        let on = |replica, rank| self.host(map, [replicas, ranks], [replica, rank]);
        (0..replicas).any(|replica| on(replica, 0) != on(replica, ranks - 1))
    }

    /// Whether reductions go between hosts, for `replicas` replicas of `ranks` ranks: as soon as the replicas
    /// of a stage are on two.
    pub fn parts_replicas(&self, map: Map, replicas: u32, ranks: u32) -> bool {
        let on = |replica, rank| self.host(map, [replicas, ranks], [replica, rank]);
        (0..ranks).any(|rank| on(0, rank) != on(replicas - 1, rank))
    }

    /// The link of transfers, for `replicas` replicas of `ranks` ranks. Between hosts, the ranks of a host
    /// that send to another host share its network card.
    pub fn of_transfers(&self, map: Map, replicas: u32, ranks: u32) -> LinkCost {
        let on = |replica, rank| self.host(map, [replicas, ranks], [replica, rank]);
        let mut senders: HashMap<u32, u32> = HashMap::new();
        for (replica, rank) in (0..replicas).flat_map(|replica| (0..ranks).map(move |rank| (replica, rank))) {
            let host = on(replica, rank);
            let after = rank + 1 < ranks && on(replica, rank + 1) != host;
            if after || rank > 0 && on(replica, rank - 1) != host {
                *senders.entry(host).or_default() += 1;
            }
        }
        self.shared_by(senders.into_values().max().map_or(0.0, f64::from))
    }

    /// The link of reductions, for `replicas` replicas of `ranks` ranks. Between hosts, what the ranks of a
    /// host send to other hosts shares its network card.
    pub fn of_reductions(&self, map: Map, replicas: u32, ranks: u32) -> LinkCost {
        // How many replicas of a rank a host has.
        let mut together: HashMap<(u32, u32), u32> = HashMap::new();
        for (replica, rank) in (0..replicas).flat_map(|replica| (0..ranks).map(move |rank| (replica, rank))) {
            let host = self.host(map, [replicas, ranks], [replica, rank]);
            *together.entry((host, rank)).or_default() += 1;
        }
        // Each of them sends a message to each replica elsewhere.
        let mut messages: HashMap<u32, f64> = HashMap::new();
        for ((host, _), here) in together {
            *messages.entry(host).or_default() += f64::from(here) * f64::from(replicas - here);
        }
        let most = messages.into_values().fold(0.0, f64::max);
        self.shared_by(most / f64::from(replicas.max(2) - 1))
    }

    /// The link between hosts for each of `senders` senders, or the link inside of a host if there is none.
    fn shared_by(&self, senders: f64) -> LinkCost {
        let link = self.between.unwrap_or(self.inside);
        match senders > 0.0 {
            true => LinkCost { per_byte: senders * link.per_byte, ..link },
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
