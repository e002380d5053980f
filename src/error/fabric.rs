//! Errors between ranks and between processes.

use std::fmt;
use std::io;
use std::sync::Arc;

use super::{MpiError, SecretError};
use crate::id::{MicroBatch, WorldRank};

/// Processes that cannot find each other or that differ, and wires that cannot be sent or received.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FabricError {
    /// A wire cannot be written for sending.
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
    /// Received bytes are not a wire.
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
    /// A rank of another process reports that sending a wire failed there.
    #[error("{cause}")]
    Told {
        /// The rank that reports it.
        rank: WorldRank,
        /// Its message.
        cause: String,
    },
    /// The numbers of a wire were sent by a carrier that this rank does not have.
    #[error(
        "rank {from} sends numbers in a way that rank {to} cannot receive: start all processes with the same \
         devices"
    )]
    NoCarrier {
        /// The sending rank.
        from: WorldRank,
        /// The receiving rank.
        to: WorldRank,
    },
    /// The numbers of an earlier call's wire are still in a carrier.
    #[error(
        "rank {from} sent a wire in call {call} that was never received: its numbers come before those of \
         this call"
    )]
    LeftOver {
        /// The sending rank.
        from: WorldRank,
        /// The call's number.
        call: u64,
    },
    /// A later attempt would use the carrier of an earlier one.
    #[error(
        "rank {rank} cannot begin attempt {attempt}: its carrier may still hold numbers of an earlier \
         attempt; connect the ranks anew"
    )]
    CarrierKept {
        /// The rank that has the carrier.
        rank: WorldRank,
        /// The attempt.
        attempt: u32,
    },
    /// Another process sends damaged bytes, or another protocol.
    #[error("process {process} sends what cannot be read: {source}")]
    Unreadable {
        /// The other process.
        process: u32,
        /// What is wrong with them.
        source: Arc<io::Error>,
    },
    /// What a process or a rank tells the others in a call cannot be read.
    #[error("{of}'s part in `{call}` cannot be read: {source}")]
    UnreadablePart {
        /// Who tells it.
        of: PartOf,
        /// The call.
        call: String,
        /// What is wrong with it.
        source: Arc<io::Error>,
    },
    /// The system gives no thread for a connection.
    #[error("cannot start a thread for the connection to process {process}: {source}")]
    Thread {
        /// The other process.
        process: u32,
        /// The system's reason.
        source: Arc<io::Error>,
    },
    /// A connection cannot be set up.
    #[error("cannot set up the connection to process {process}: {source}")]
    CannotSetUp {
        /// The other process.
        process: u32,
        /// The system's reason.
        source: Arc<io::Error>,
    },
    /// Two processes make different calls.
    #[error(
        "process {other} is at `{others_call}`, process {process} at `{call}`: all processes must make the \
         same calls"
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
    /// Two processes differ.
    #[error("process {process} differs from process 0 in {part}: it has {has}, process 0 has {first}")]
    NotAlike {
        /// The process.
        process: u32,
        /// What differs.
        part: String,
        /// What this process has.
        has: String,
        /// What process 0 has.
        first: String,
    },
    /// Two processes have read different data, although their fingerprints are equal.
    #[error(
        "the data of {call} differ: process {} has read another micro-batch {micro_batch} than process {}. \
         All processes need the same data, and a source has to give the same numbers whenever it is asked \
         for a step and a micro-batch",
        processes[1], processes[0]
    )]
    DataDiffers {
        /// What the data was read for, such as `step 3`.
        call: String,
        /// The first micro-batch that differs.
        micro_batch: MicroBatch,
        /// The processes.
        processes: [u32; 2],
    },
    /// A process's number is too large.
    #[error(
        "RANK is {process} and WORLD_SIZE {processes}: ranks of processes go from 0 to {}",
        processes.saturating_sub(1)
    )]
    NoSuchProcess {
        /// The process.
        process: u32,
        /// How many there are.
        processes: u32,
    },
    /// A process cannot listen for the others.
    #[error("cannot listen at {address}: {}", cannot_listen(source))]
    CannotListen {
        /// Where it should listen.
        address: String,
        /// The system's reason.
        source: Arc<io::Error>,
    },
    /// Process 0 does not listen where it should.
    #[error(
        "cannot reach process 0 at {address} within {seconds} s ({source}): start process 0 there, or give \
         more time (launch.deadline)"
    )]
    CannotReach {
        /// Where it should listen.
        address: String,
        /// How long the process tried.
        seconds: f64,
        /// The system's last reason.
        source: Arc<io::Error>,
    },
    /// Another program listens where process 0 should.
    #[error(
        "what listens at {address} is no process 0 of this program: it answers in another protocol; give \
         all processes another MASTER_PORT or launch.address"
    )]
    Foreign {
        /// Where it listens.
        address: String,
    },
    /// Whatever listens where process 0 should does not answer.
    #[error("what listens at {address} has said nothing for {seconds} s: is it process 0 of this run?")]
    Silent {
        /// Where it listens.
        address: String,
        /// How long the process waited.
        seconds: f64,
    },
    /// Process 0 ended before all processes had connected.
    #[error(
        "process 0 at {address} has ended the connection ({source}): its own output says why; or another \
         program listens there"
    )]
    FirstGone {
        /// Where it listened.
        address: String,
        /// The system's reason.
        source: Arc<io::Error>,
    },
    /// The processes cannot make a run.
    #[error("{cause}")]
    Refused {
        /// The cause, as process 0 tells all.
        cause: String,
    },
    /// Some processes did not connect to process 0 in time.
    #[error(
        "process {} of {of} did not come to {address} within {seconds} s: start it, or give more time \
         (launch.deadline){}",
        list(processes),
        notes(turned_away)
    )]
    Missing {
        /// Those that did not connect.
        processes: Vec<u32>,
        /// How many there should be.
        of: u32,
        /// Where process 0 listens.
        address: String,
        /// How long it waited.
        seconds: f64,
        /// Which processes were refused, and why.
        turned_away: Vec<String>,
    },
    /// A process cannot be reached by another.
    #[error(
        "cannot reach process {process} at {address}: {source}; every process has to be able to connect to \
         those of lower RANK"
    )]
    CannotReachPeer {
        /// The process that cannot be reached.
        process: u32,
        /// Where it listens.
        address: std::net::SocketAddr,
        /// The system's reason.
        source: Arc<io::Error>,
    },
    /// Some processes did not connect to another one in time.
    #[error(
        "not reached by process {} in time: every process has to be able to connect to those of lower RANK",
        list(processes)
    )]
    NotConnected {
        /// The process that waited.
        process: u32,
        /// Those that did not connect.
        processes: Vec<u32>,
    },
    /// A process ended while the processes were connecting.
    #[error("process {process} stopped while the processes were connecting: its own output says why")]
    Vanished {
        /// The process.
        process: u32,
    },
    /// MPI cannot connect the processes.
    #[error(transparent)]
    Mpi(#[from] MpiError),
    /// The run's secret, or what needs one.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// The schedule would deadlock where transfers between two ranks happen one after the other.
    #[error("between GPUs of several processes transfers go one after the other: {source}")]
    NotOrdered {
        /// The schedule's error: why, and where.
        source: Arc<crate::schedule::Error>,
    },
    /// Two ranks of a process share one GPU, but NCCL allows one rank a GPU.
    #[error(
        "ranks {} and {} of one process are both on {device} and both have links to other processes: NCCL \
         takes one rank a GPU; start more processes, with fewer ranks each, or give these ranks a GPU each \
         (pipeline.devices)",
        ranks[0], ranks[1]
    )]
    SharedGpu {
        /// The two ranks.
        ranks: [WorldRank; 2],
        /// Their GPU.
        device: pipewright_stages::Device,
    },
    /// The processes do not agree which ranks NCCL connects: not exactly one of them gives its id.
    #[error(
        "the processes do not agree which ranks NCCL connects: {}, where one process gives it; start all \
         with the same devices and the same schedule",
        match givers.as_slice() {
            [] => "no process gives its id".to_owned(),
            givers => format!("its id comes from processes {}", list(givers)),
        }
    )]
    NcclDiffers {
        /// The processes that give an id.
        givers: Vec<u32>,
    },
    /// An announced wire cannot be received.
    #[error("rank {from} announces a wire to rank {to}, but NCCL does not connect the two")]
    Unreceivable {
        /// The sending rank.
        from: WorldRank,
        /// The receiving rank.
        to: WorldRank,
    },
}

/// Who tells the others something in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartOf {
    /// A process.
    Process(u32),
    /// A rank.
    Rank(WorldRank),
}

impl fmt::Display for PartOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process(process) => write!(f, "process {process}"),
            Self::Rank(rank) => write!(f, "rank {rank}"),
        }
    }
}

impl FabricError {
    /// A part in a call that cannot be read. Processes run one build of the program, so what one has written
    /// another can read, unless it was damaged.
    pub(crate) fn unreadable_part(
        of: PartOf,
        call: &str,
        error: impl std::error::Error + Send + Sync + 'static,
    ) -> Self {
        Self::UnreadablePart {
            of,
            call: call.to_owned(),
            source: Arc::new(io::Error::new(io::ErrorKind::InvalidData, error)),
        }
    }

    /// Whether the processes were refused before any work began.
    pub(crate) fn is_refusal(&self) -> bool {
        !matches!(
            self,
            Self::CannotWrite { .. }
                | Self::CannotRead { .. }
                | Self::Told { .. }
                | Self::NoCarrier { .. }
                | Self::Unreceivable { .. }
                | Self::LeftOver { .. }
                | Self::CarrierKept { .. }
                | Self::Unreadable { .. }
                | Self::UnreadablePart { .. }
                | Self::Thread { .. }
                | Self::CannotSetUp { .. }
                | Self::CallsDiffer { .. }
        )
    }
}

/// Why a process cannot listen, and what to do.
fn cannot_listen(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            "the port is in use; end the run that has it, or give all processes another \
             MASTER_PORT or launch.address"
                .to_owned()
        }
        io::ErrorKind::AddrNotAvailable => {
            "this machine has no such address; start process 0 (RANK=0) on the machine \
             that MASTER_ADDR or launch.address names"
                .to_owned()
        }
        _ => format!("{error}; give host:port in launch.address, or MASTER_ADDR and MASTER_PORT"),
    }
}

/// The numbers of processes as text.
fn list(processes: &[u32]) -> String {
    let processes: Vec<_> = processes.iter().map(u32::to_string).collect();
    processes.join(", ")
}

/// Each note after a semicolon.
fn notes(notes: &[String]) -> String {
    notes.iter().map(|note| format!("; {note}")).collect()
}
