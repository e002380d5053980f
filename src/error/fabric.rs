//! What goes wrong between ranks and between processes.

use std::io;
use std::sync::Arc;

use crate::id::WorldRank;

/// Processes that cannot find each other or do not do the same, and wires that cannot go from rank to rank.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FabricError {
    /// What a wire says of itself or writes cannot be sent.
    #[error("rank {from} cannot send rank {to} the wire with tag {tag:#x}: {source}")]
    CannotWrite {
        /// The sending rank.
        from: WorldRank,
        /// The receiving rank.
        to: WorldRank,
        /// The wire's tag.
        tag: u64,
        /// What the wire reports.
        source: Arc<io::Error>,
    },
    /// What has come is no wire.
    #[error("rank {to} cannot read the wire with tag {tag:#x} from rank {from}: {source}")]
    CannotRead {
        /// The sending rank.
        from: WorldRank,
        /// The receiving rank.
        to: WorldRank,
        /// The wire's tag.
        tag: u64,
        /// What the wire reports.
        source: Arc<io::Error>,
    },
    /// What a rank of another process says of a wire that has failed there.
    #[error("{cause}")]
    Told {
        /// The rank that says it.
        rank: WorldRank,
        /// What it says.
        cause: String,
    },
    /// The numbers of a wire were given to a carrier that this rank does not have.
    #[error(
        "rank {from} sends what rank {to} has no way to receive: start all processes with the same devices"
    )]
    NoCarrier {
        /// The sending rank.
        from: WorldRank,
        /// The receiving rank.
        to: WorldRank,
    },
    /// A wire of an earlier call is still on its way by a carrier.
    #[error(
        "rank {from} sent a wire in call {call} that nobody took: its numbers stand before those of this call"
    )]
    LeftOver {
        /// The sending rank.
        from: WorldRank,
        /// The call's number.
        call: u64,
    },
    /// What another process sends is of another protocol, or damaged.
    #[error("process {process} sends what cannot be read: {source}")]
    Unreadable {
        /// The other process.
        process: u32,
        /// What makes no sense.
        source: Arc<io::Error>,
    },
    /// Two processes do not make the same calls.
    #[error(
        "process {other} is at `{others_call}`, process {process} at `{call}`: all have to make the same calls"
    )]
    CallsDiffer {
        /// This process.
        process: u32,
        /// Its call.
        call: String,
        /// The other process.
        other: u32,
        /// The other's call.
        others_call: String,
    },
    /// Two processes are not alike.
    #[error("process {process} differs from process 0 in {part}: it has {has}, process 0 has {first}")]
    NotAlike {
        /// The process.
        process: u32,
        /// What differs.
        part: String,
        /// What it is there.
        has: String,
        /// What it is in process 0.
        first: String,
    },
    /// Two ranks of a process have one GPU, and NCCL takes one rank a GPU.
    #[error(
        "ranks {} and {} of one process are both on {device} and both have links to other processes: NCCL takes one \
         rank a GPU; start more processes, with fewer ranks each, or give these ranks a GPU each (pipeline.devices)",
        ranks[0], ranks[1]
    )]
    SharedGpu {
        /// The two ranks.
        ranks: [WorldRank; 2],
        /// Their GPU.
        device: pipewright_stages::Device,
    },
    /// What was announced cannot be received.
    #[error("rank {from} announces what rank {to} cannot receive from it")]
    Unreceivable {
        /// The sending rank.
        from: WorldRank,
        /// The receiving rank.
        to: WorldRank,
    },
}
