//! How replicas come to the same weights.

/// How the replicas of a pipeline come to the same weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SyncMode {
    /// A step ends when the gradients of all replicas are added up and the weights are updated.
    #[default]
    Reduce,
    /// The weights are in a parameter server. Each rank of each replica is a shard of it. A replica pushes
    /// its gradients to the shards, and takes new weights from them. The shards update a weight when the
    /// gradients of all replicas have come.
    ///
    /// Li et al., "Scaling distributed machine learning with the parameter server" (OSDI 2014); Ho et al.,
    /// "More effective distributed ML via a stale synchronous parallel parameter server" (NIPS 2013).
    Server {
        /// Of how many steps the updates may be missing in the weights with which a replica begins a step.
        /// With 0 the weights are the same, bit for bit, as with [`SyncMode::Reduce`]. With more, they depend
        /// on which replica is early: no two runs are the same.
        max_staleness: u32,
    },
}

impl SyncMode {
    /// Of how many steps updates may be missing.
    pub(super) fn max_staleness(self) -> u32 {
        match self {
            Self::Reduce => 0,
            Self::Server { max_staleness } => max_staleness,
        }
    }

    /// Whether each replica updates only what it owns.
    pub(super) fn divides_updates(self) -> bool {
        self != Self::Reduce
    }
}
