//! Errors of MPI between processes.

use std::io;
use std::sync::Arc;

/// MPI cannot connect the processes of a run.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MpiError {
    /// MPI was started in this process before, and it cannot be started twice.
    #[error("MPI was started in this process before: a process can take part in one run by MPI")]
    Twice,
    /// The system gives no thread for MPI.
    #[error("cannot start the thread that receives by MPI: {source}")]
    Thread {
        /// The system's reason.
        source: Arc<io::Error>,
    },
    /// MPI does not let several threads call it.
    #[error(
        "this MPI does not let several threads call it (MPI_THREAD_MULTIPLE): build MPI with threads, or set \
         launch.fabric = \"sockets\""
    )]
    NoThreads,
    /// MPI gives a process another place than its environment.
    #[error(
        "two answers to where a process is: its environment says process {} of {}, MPI says process {} of \
         {}; start it with the launcher of the MPI that it was built with, and unset RANK and WORLD_SIZE",
        said[0], said[1], is[0], is[1]
    )]
    Differs {
        /// The process and the number of processes in its environment.
        said: [u32; 2],
        /// The same, from MPI.
        is: [u32; 2],
    },
}
