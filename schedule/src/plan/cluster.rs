//! What a link between two ranks costs, and the links between the hosts of a run and inside of them.

use std::collections::HashMap;

use crate::mesh::Map;

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
    /// Whether transfers go between hosts, in a world of these sizes: replicas, ranks of a replica, shards of
    /// a rank. They do as soon as a pipeline has ranks on two.
    pub fn parts_pipelines(&self, map: Map, sizes: [u32; 3]) -> bool {
        let [replicas, ranks, _] = sizes;
        let on = |replica, rank| self.host(map, sizes, [replica, rank]);
        (0..replicas).any(|replica| on(replica, 0) != on(replica, ranks - 1))
    }

    /// Whether reductions go between hosts: as soon as the replicas of a stage are on two.
    pub fn parts_replicas(&self, map: Map, sizes: [u32; 3]) -> bool {
        let [replicas, ranks, _] = sizes;
        let on = |replica, rank| self.host(map, sizes, [replica, rank]);
        (0..ranks).any(|rank| on(0, rank) != on(replicas - 1, rank))
    }

    /// Whether the shards of a rank are on two hosts.
    pub fn parts_shards(&self, sizes: [u32; 3]) -> bool {
        let [.., shards] = sizes;
        self.hosts > 1 && !self.on_each(sizes).is_multiple_of(shards)
    }

    /// The link of transfers. Between hosts, the ranks of a host that send to another host share its network
    /// card.
    pub fn of_transfers(&self, map: Map, sizes: [u32; 3]) -> LinkCost {
        let [replicas, ranks, _] = sizes;
        let on = |replica, rank| self.host(map, sizes, [replica, rank]);
        let mut senders: HashMap<u32, u32> = HashMap::new();
        for (replica, rank) in (0..replicas).flat_map(|replica| (0..ranks).map(move |rank| (replica, rank))) {
            let host = on(replica, rank);
            let after = rank + 1 < ranks && on(replica, rank + 1) != host;
            if after || rank > 0 && on(replica, rank - 1) != host {
                *senders.entry(host).or_default() += self.shards_on_each(sizes);
            }
        }
        self.shared_by(senders.into_values().max().map_or(0.0, f64::from))
    }

    /// The link of reductions. Between hosts, what the ranks of a host send to other hosts shares its network
    /// card.
    pub fn of_reductions(&self, map: Map, sizes: [u32; 3]) -> LinkCost {
        let [replicas, ranks, _] = sizes;
        // How many replicas of a rank a host has.
        let mut together: HashMap<(u32, u32), u32> = HashMap::new();
        for (replica, rank) in (0..replicas).flat_map(|replica| (0..ranks).map(move |rank| (replica, rank))) {
            let host = self.host(map, sizes, [replica, rank]);
            *together.entry((host, rank)).or_default() += 1;
        }
        // Each of them sends a message to each replica elsewhere.
        let mut messages: HashMap<u32, f64> = HashMap::new();
        for ((host, _), here) in together {
            *messages.entry(host).or_default() += f64::from(here) * f64::from(replicas - here);
        }
        let most = messages.into_values().fold(0.0, f64::max);
        self.shared_by(most * f64::from(self.shards_on_each(sizes)) / f64::from(replicas.max(2) - 1))
    }

    /// The link between the shards of a rank. If they are on several hosts, all shards of a host share its
    /// network card.
    pub fn of_shards(&self, sizes: [u32; 3]) -> LinkCost {
        let senders = if self.parts_shards(sizes) { self.on_each(sizes) } else { 0 };
        self.shared_by(f64::from(senders))
    }

    /// The link between hosts for each of `senders` senders, or the link inside of a host if there is none.
    fn shared_by(&self, senders: f64) -> LinkCost {
        let link = self.between.unwrap_or(self.inside);
        match senders > 0.0 {
            true => LinkCost { per_byte: senders * link.per_byte, ..link },
            false => self.inside,
        }
    }

    /// The host of the first shard of a rank.
    fn host(&self, map: Map, sizes: [u32; 3], [replica, rank]: [u32; 2]) -> u32 {
        let [replicas, ranks, shards] = sizes;
        let place = match map {
            Map::Pipeline => replica * ranks + rank,
            Map::Replicas => rank * replicas + replica,
        };
        place * shards / self.on_each(sizes)
    }

    /// How many world ranks a host has.
    fn on_each(&self, sizes: [u32; 3]) -> u32 {
        sizes.iter().product::<u32>().div_ceil(self.hosts.max(1)).max(1)
    }

    /// How many shards of a rank a host has.
    fn shards_on_each(&self, sizes: [u32; 3]) -> u32 {
        self.on_each(sizes).min(sizes[2])
    }
}

/// What a link costs, in the time of a message: `latency + bytes * per_byte` seconds. The default is a link
/// that is free.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LinkCost {
    /// Seconds of any message.
    pub latency: f64,
    /// Seconds of each byte.
    pub per_byte: f64,
}

impl LinkCost {
    /// The seconds of a message of `bytes` bytes.
    pub fn time(self, bytes: f64) -> f64 {
        self.latency + bytes * self.per_byte
    }
}

/// How the messages that a rank sends wait for each other. On a slow link most of a message's time is the
/// time of its bytes, and they keep the link from others. The default: messages do not wait.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Queue {
    /// For how much of its time a transfer occupies the link of the rank that sends it.
    pub transfer: f64,
    /// Whether reductions take the same link, for all of their time. A transfer and a reduction that are
    /// under way at once have half of it each.
    pub reductions: bool,
}
