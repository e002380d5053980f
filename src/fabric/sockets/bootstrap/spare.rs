//! A spare: it waits beside a run until a process is lost.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use super::Membership;
use super::members::{reach_first, unheard};
use super::message::{Message, receive, send};
use crate::error::{FabricError, Result};
use crate::fabric::processes::{Alike, plain};
use crate::fabric::sockets::handshake::{Gate, Purpose};

/// For ever: an `Instant` cannot be far in the future.
const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// Waits beside the run of this membership. Calls `known` when process 0 knows this spare. Returns the
/// number of the process whose place it takes, and the number of processes; `None` when the run has ended.
pub(super) fn stand_by(
    membership: &Membership,
    gate: &Gate,
    alike: Alike,
    known: impl FnOnce(),
    deadline: Instant,
) -> Result<Option<[u32; 2]>> {
    let first = reach_first(membership, (gate, None, false), Purpose::Spare, deadline)?;
    let mut said = send(&first, &Message::Spare(alike), deadline).and_then(|()| receive(&first, deadline));
    if let Ok(Message::Known) = said {
        known();
        said = receive(&first, Instant::now() + YEAR);
    }
    match said {
        Ok(Message::Take { process, processes }) => Ok(Some([process, processes])),
        Ok(Message::Over) => Ok(None),
        Ok(Message::Refused(why)) => Err(FabricError::refused(plain(&why)).into()),
        Ok(_) => Err(unheard(membership, ErrorKind::InvalidData.into()).into()),
        Err(error) => Err(unheard(membership, error).into()),
    }
}
