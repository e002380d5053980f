//! Why a process was not let in.

use std::io;

/// Why a process was not let in.
#[derive(Debug)]
pub(in crate::fabric::sockets) enum Rebuff {
    /// Nothing listens there.
    Unreached(io::Error),
    /// The connection has failed, or there is another program.
    Failed(io::Error),
    /// The process that listens does not take the proof.
    NotTaken,
    /// What listens cannot prove that it belongs to the run.
    Impostor,
    /// This process was asked to end before it was let in.
    Interrupted,
}

impl From<io::Error> for Rebuff {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

impl From<Rebuff> for io::Error {
    fn from(rebuff: Rebuff) -> Self {
        match rebuff {
            Rebuff::Unreached(error) | Rebuff::Failed(error) => error,
            Rebuff::NotTaken => Self::other("it does not take this process for one of its run"),
            Rebuff::Impostor => Self::other("what listens there does not belong to the run"),
            Rebuff::Interrupted => Self::other("this process was asked to end"),
        }
    }
}
