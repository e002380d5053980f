//! Errors between ranks and between processes.

use std::fmt::Display;
use std::io;

use pipewright_schedule::error::Problem;

/// Processes that cannot find each other or that differ, and wires that cannot be sent or received.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FabricError {
    /// The processes cannot make a run, or differ: they were refused before any work began.
    #[error(transparent)]
    Refused(Problem),
    /// A process stopped while the processes were connecting. All others may connect anew.
    #[error(transparent)]
    Lost(Problem),
    /// A connection, a wire or a call failed.
    #[error(transparent)]
    Failed(Problem),
}

impl FabricError {
    /// Processes that are refused, with this message.
    pub fn refused(text: impl Into<String>) -> Self {
        Self::Refused(Problem::new(text))
    }

    /// A failure with this message.
    pub(crate) fn failed(text: impl Into<String>) -> Self {
        Self::Failed(Problem::new(text))
    }

    /// A process ended before all processes were connected.
    pub(crate) fn vanished(process: u32) -> Self {
        Self::Lost(Problem::new(format!(
            "process {process} stopped while the processes were connecting: its own output says why"
        )))
    }

    /// A process cannot listen for the others.
    pub(crate) fn cannot_listen(address: &str, source: io::Error) -> Self {
        let why = match source.kind() {
            io::ErrorKind::AddrInUse => {
                "the port is in use; end the run that has it, or give all processes another MASTER_PORT or \
                 launch.address"
                    .to_owned()
            }
            io::ErrorKind::AddrNotAvailable => {
                "this machine has no such address; start process 0 (RANK=0) on the machine that MASTER_ADDR \
                 or launch.address names"
                    .to_owned()
            }
            _ => format!("{source}; give host:port in launch.address, or MASTER_ADDR and MASTER_PORT"),
        };
        Self::Refused(Problem::because(format!("cannot listen at {address}: {why}"), source))
    }

    /// Without a secret, processes of other hosts would be let in.
    pub(crate) fn needs_secret(address: &str) -> Self {
        Self::refused(format!(
            "{address} can be reached from other hosts, and the run has no secret: make one by `openssl rand \
             -hex 32`, and give it to all processes, as PIPEWRIGHT_TOKEN or in a file that launch.token_file \
             names; without one, all processes have to be on one host, at an address such as 127.0.0.1:29500"
        ))
    }

    /// Some processes did not connect to another one in time.
    pub(crate) fn not_connected(processes: &[u32]) -> Self {
        Self::refused(format!(
            "not reached by process {} in time: every process has to be able to connect to those of lower \
             RANK",
            list(processes)
        ))
    }

    /// The system gives no thread for the connection to this process.
    pub fn no_thread(process: u32, source: io::Error) -> Self {
        let text = format!("cannot start a thread for the connection to process {process}: {source}");
        Self::Failed(Problem::because(text, source))
    }

    /// The connection to this process cannot be set up.
    pub fn cannot_set_up(process: u32, source: io::Error) -> Self {
        let text = format!("cannot set up the connection to process {process}: {source}");
        Self::Failed(Problem::because(text, source))
    }

    /// Not exactly one process gives the id by which NCCL connects ranks: these processes give one.
    pub fn nccl_differs(givers: &[u32]) -> Self {
        let given = match givers {
            [] => "no process gives its id".to_owned(),
            givers => format!("its id comes from processes {}", list(givers)),
        };
        Self::refused(format!(
            "the processes do not agree which ranks NCCL connects: {given}, where one process gives it; \
             start all with the same devices and the same schedule"
        ))
    }

    /// Process `other` makes another call than `process`.
    pub(crate) fn calls_differ(process: u32, call: &str, other: u32, others_call: &str) -> Self {
        Self::failed(format!(
            "process {other} is at `{others_call}`, process {process} at `{call}`: all processes must make \
             the same calls"
        ))
    }

    /// What a process or a rank tells the others in a call cannot be read. Processes run one build of the
    /// program, so what one has written another can read, unless it was damaged.
    pub(crate) fn unreadable_part(
        of: impl Display,
        call: &str,
        error: impl std::error::Error + Send + Sync + 'static,
    ) -> Self {
        let text = format!("{of}'s part in `{call}` cannot be read: {error}");
        Self::Failed(Problem::because(text, error))
    }
}

/// The numbers of processes as text.
pub(crate) fn list(processes: &[u32]) -> String {
    let processes: Vec<_> = processes.iter().map(u32::to_string).collect();
    processes.join(", ")
}
