//! What it costs to add up the gradients of a stage over its replicas.

use crate::groups::is_exchanged;
use crate::plan::LinkCost;

/// How the replicas of a stage add up their gradients, and what that costs.
///
/// There are two ways. In an *exchange* each of `d` replicas sends all to every other: `d - 1` messages, each
/// of all bytes. In a *scatter* each replica first gets a slice of the sum, and then they give each other
/// their slices: `2 (d - 1)` messages, each of a `d`-th of the bytes. [`is_exchanged`] says which way they
/// take.
///
/// With ZeRO-1 a replica updates only its slice. So it needs no more than a slice of the sum. The slices that
/// the replicas give each other are slices of the new weights, after the update.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reduction {
    /// How many replicas there are. One has nothing to add.
    pub replicas: u32,
    /// What a message between two of them costs.
    pub link: LinkCost,
    /// Seconds to add a byte of gradients to a sum.
    pub add: f64,
    /// Whether each replica updates only its slice of the weights (ZeRO-1).
    pub sharded: bool,
}

impl Reduction {
    /// The time to add up `bytes` bytes of gradients, before the update.
    pub fn gradients(&self, bytes: f64) -> f64 {
        let slices = self.messages(self.slice(bytes), self.add);
        let numbers = bytes as usize / size_of::<f32>();
        match is_exchanged(numbers, self.replicas) {
            _ if self.sharded => slices,
            true => self.messages(bytes, self.add),
            false => slices + self.messages(self.slice(bytes), 0.0),
        }
    }

    /// The time to collect `bytes` bytes of weights, after the update. 0 if each replica updates all.
    pub fn weights(&self, bytes: f64) -> f64 {
        match self.sharded {
            true => self.messages(self.slice(bytes), 0.0),
            false => 0.0,
        }
    }

    /// The part of the update that a replica does, from 0 to 1.
    pub fn share_of_update(&self) -> f64 {
        match self.sharded {
            true => 1.0 / self.count(),
            false => 1.0,
        }
    }

    /// The time of a message of `bytes` bytes from each other replica, with `add` seconds for each byte.
    fn messages(&self, bytes: f64, add: f64) -> f64 {
        match self.replicas {
            0 | 1 => 0.0,
            replicas => f64::from(replicas - 1) * (self.link.time(bytes) + bytes * add),
        }
    }

    fn slice(&self, bytes: f64) -> f64 {
        bytes / self.count()
    }

    fn count(&self) -> f64 {
        f64::from(self.replicas.max(1))
    }
}
