//! How a process was lost.

use std::fmt;

/// How a process ended that did not say why, as far as another one can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessLoss {
    /// Its connections were closed, as the system does when a process ends.
    Closed,
    /// Nothing came from its machine for so long that the connection was given up.
    Silent,
    /// It held the others up for longer than `pipeline.stall_limit`, so they do without it.
    Stalled,
    /// It cannot be told.
    Unknown,
}

impl ProcessLoss {
    const ALL: [Self; 4] = [Self::Closed, Self::Silent, Self::Stalled, Self::Unknown];

    /// For another process.
    pub(crate) fn to_byte(self) -> u8 {
        self as u8
    }

    pub(crate) fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.get(usize::from(byte)).copied()
    }

    /// What the process did, for a message.
    pub(super) fn what(self) -> &'static str {
        match self {
            Self::Stalled => "is given up",
            Self::Closed | Self::Silent | Self::Unknown => "has stopped without saying why",
        }
    }
}

impl fmt::Display for ProcessLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Closed => "its connections were closed, so it was killed or it crashed",
            Self::Silent => "its machine does not answer any more, so that or the network failed",
            Self::Stalled => "it held the others up for longer than `pipeline.stall_limit`",
            Self::Unknown => "it was killed, or its machine or the network failed",
        })
    }
}
