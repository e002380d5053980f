//! What a link between two ranks promises.

use std::fmt;
use std::str::FromStr;

use crate::error::ScheduleError;

/// A kind of links: what the links between ranks promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LinkKind {
    /// A send is kept until its receive takes it. Transfers between two ranks may overtake each other. Papers
    /// assume such links, and channels inside a process are such links.
    Buffered,
    /// Each rank has one queue of communication (sends, receives and reductions) in the order of its list. A
    /// transfer happens only when it is at the head of both its ranks' queues. NCCL promises no more than
    /// that.
    Ordered,
}

impl fmt::Display for LinkKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Buffered => "buffered",
            Self::Ordered => "ordered",
        })
    }
}

impl FromStr for LinkKind {
    type Err = ScheduleError;

    fn from_str(text: &str) -> Result<Self, ScheduleError> {
        match text {
            "buffered" => Ok(Self::Buffered),
            "ordered" => Ok(Self::Ordered),
            _ => Err(ScheduleError::new(format!("{text:?} are no links; known are buffered and ordered"))),
        }
    }
}
