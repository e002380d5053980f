//! A spare: it waits beside a run until a process is lost.

use std::io::ErrorKind;
use std::time::Instant;

use super::members::{YEAR, reach_first, unheard};
use super::message::{Comer, Message, receive, send};
use super::reach::First;
use super::{GRACE, Membership, address};
use crate::error::{FabricError, Result};
use crate::fabric::processes::{Alike, plain};
use crate::fabric::sockets::handshake::{Gate, Purpose};
use crate::fabric::sockets::line::probe;

/// Waits beside the run of this membership. Calls `known` when process 0 knows this spare. Returns the
/// number of the process whose place it takes, and the number of processes; `None` when the run has ended.
pub(super) fn stand_by(
    membership: &Membership,
    gate: &Gate,
    alike: Alike,
    known: impl FnOnce(),
    deadline: Instant,
) -> Result<Option<[u32; 2]>> {
    let comer = Comer { alike, can_lead: address::has_own(membership) };
    let (mut known, mut deadline) = (Some(known), deadline);
    let (mut first, mut back) = (First::Comes, None);
    loop {
        let channel = match back.take() {
            Some(channel) => channel,
            None => reach_first(membership, (gate, None, first), Purpose::Spare, deadline)?,
        };
        let said = send(&channel, &Message::Spare(comer.clone()), deadline);
        let mut said = said.and_then(|()| receive(&channel, deadline));
        let mut leads = None;
        if let Ok(Message::Known) = said {
            known.take().into_iter().for_each(|known| known());
            said = probe(&channel, membership.silence).and_then(|_| receive(&channel, Instant::now() + YEAR));
        }
        if let Ok(Message::Heir { processes }) = said {
            leads = Some([0, processes]);
            said = receive(&channel, Instant::now() + YEAR);
        }
        match said {
            Ok(Message::Take { process, processes }) => return Ok(Some([process, processes])),
            Ok(Message::Over) => return Ok(None),
            Ok(Message::Refused(why)) => return Err(FabricError::refused(plain(&why)).into()),
            Ok(_) => return Err(unheard(membership, ErrorKind::InvalidData.into()).into()),
            // Process 0 was lost, or only the connection.
            Err(_) if leads.is_some() => {
                deadline = Instant::now() + GRACE;
                match reach_first(membership, (gate, None, First::Listens), Purpose::Spare, deadline) {
                    Ok(channel) => back = Some(channel),
                    Err(_) => return Ok(leads),
                }
            }
            // Another one will take its place.
            Err(_) if known.is_none() => {
                first = First::Lost;
                deadline = Instant::now() + membership.deadline;
            }
            Err(error) => return Err(unheard(membership, error).into()),
        }
    }
}
