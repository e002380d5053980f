//! How processes find each other. All connect to process 0, which tells each one the addresses of the others.
//! Then each connects to each.

mod acceptor;
mod address;
mod admission;
mod alike;
mod coordinator;
mod members;
mod message;
mod peer;
mod reach;
mod spare;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::channel::Channel;
use super::handshake::{Gate, Key, Secret};
use crate::error::{FabricError, Result};
use crate::fabric::processes::Alike;
use crate::interrupt::Interrupt;
pub(super) use admission::Door;
use message::Hello;
use reach::First;

/// How much longer to wait for process 0. Its own deadline began later, and it says when it gives up.
pub(super) const GRACE: Duration = Duration::from_secs(2);

/// A process that does not come within this time is taken for lost, and a spare for gone.
pub(super) const LATE: Duration = Duration::from_secs(10);

/// A process's place in a run of several processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    /// Its number, from 0.
    pub process: u32,
    /// How many there are.
    pub processes: u32,
    /// Where process 0 listens: host and port. Several are separated by commas: where it listens, and where
    /// another process 0 may listen that takes the place of a lost one, in this order.
    pub address: String,
    /// How long all of it may take: to wait for the others, and to connect with each.
    pub deadline: Duration,
    /// How long another machine may be silent before it counts as gone. [`Membership::SILENCE`] is the usual
    /// value. A stopped process is not gone, because its machine still answers.
    pub silence: Duration,
    /// What all processes of the run know, and nobody else. `None`: all are on this machine, and each proves
    /// only that it runs the same program file.
    pub secret: Option<Secret>,
    /// Whether connections between machines are encrypted. It needs the feature `tls`, and a secret.
    pub tls: bool,
    /// Whether the run goes on when a process is lost and another one takes its place: see
    /// [`Pipeline::rejoin`](crate::Pipeline::rejoin). All processes say the same.
    pub replaces: bool,
    /// The fewest processes with which the run goes on when some were lost, and no others take their places
    /// before the deadline, or when some are asked to end by SIGTERM. `processes`: it needs all. Process 0 is
    /// always needed.
    pub fewest: u32,
}

impl Membership {
    /// Longer than a machine that is paused for a minute.
    pub const SILENCE: Duration = Duration::from_secs(90);
}

/// The connections between two processes.
pub(super) struct Pair {
    /// The connection for frames.
    pub(super) data: Arc<Channel>,
    /// Only a few words are said here. It ends when the other process or its machine has gone.
    pub(super) watch: Arc<Channel>,
}

/// The connections to all other processes.
pub(super) struct Joined {
    /// By process. `None` for this one.
    pub(super) pairs: Vec<Option<Pair>>,
    /// The processes on this one's machine, with this one, in order.
    pub(super) local: Vec<u32>,
    /// By process: the number with which it was started. Some are missing if the run goes on without them.
    pub(super) numbers: Vec<u32>,
    /// The number that the run had when it began.
    pub(super) first: [u8; 32],
    /// Whether it goes on after processes were lost.
    pub(super) goes_on: bool,
    /// In process 0 of a run that replaces processes.
    pub(super) door: Option<Door>,
}

/// What a process brings that joins its run again.
pub(super) struct Back<'a> {
    /// The number that the run had when it began.
    pub(super) run: [u8; 32],
    /// The processes that were lost, as far as this one knows: the numbers with which they were started.
    pub(super) lost: &'a [u32],
    /// The processes without which the run went on.
    pub(super) absent: Vec<u32>,
    pub(super) door: Option<Door>,
}

/// Where every process is, in the order of their numbers. All know it once the last one has connected.
struct Known {
    addresses: Vec<SocketAddr>,
    /// By process: the number with which it was started.
    numbers: Vec<u32>,
    /// The number of this run. Process 0 has drawn it at random.
    run: [u8; 32],
    /// The number that it had when it began.
    first: [u8; 32],
}

/// `back`: if this process joins its run again. `interrupt` ends the wait for the others.
pub(super) fn join(
    membership: &Membership,
    program: &str,
    back: Option<Back<'_>>,
    interrupt: &Interrupt,
    deadline: Instant,
) -> Result<Joined> {
    let Membership { process, processes, .. } = *membership;
    if process >= processes {
        return Err(FabricError::refused(format!(
            "RANK is {process} and WORLD_SIZE {processes}: ranks of processes go from 0 to {}",
            processes.saturating_sub(1)
        ))
        .into());
    }
    let gate = gate(membership)?;
    let was_in = back.as_ref().map(|back| back.run);
    let absent = back.as_ref().map(|back| back.absent.clone()).unwrap_or_default();
    let hello =
        |address| Hello { processes, address, alike: Alike::here(program), was_in, absent: absent.clone() };
    let (known, pairs, door) = match process {
        0 => {
            let lost = back.as_ref().map_or(&[][..], |back| back.lost);
            let waiting = back.and_then(|back| back.door?.close());
            let heeds = (gate, interrupt.clone());
            let (known, pairs, waiting) =
                coordinator::gather(membership, heeds, hello, (lost, &absent, waiting), deadline)?;
            let door = membership.replaces.then(|| Door::open(waiting)).transpose();
            let door = door.map_err(|source| FabricError::cannot_listen(&membership.address, source))?;
            (known, pairs, door)
        }
        _ => {
            let first = match back {
                None => First::Comes,
                Some(back) if back.lost.contains(&0) => First::Lost,
                Some(_) => First::Listens,
            };
            let (known, pairs) = members::come(membership, (&gate, interrupt, first), hello, deadline)?;
            (known, pairs, None)
        }
    };
    let place = known.numbers.iter().position(|number| *number == process).unwrap_or_default();
    let own = known.addresses[place].ip();
    let all = (0..).zip(&known.addresses);
    let local = all.filter_map(|(number, address)| (address.ip() == own).then_some(number));
    let (local, goes_on) = (local.collect(), known.first != known.run);
    Ok(Joined { pairs, local, numbers: known.numbers, first: known.first, goes_on, door })
}

/// Waits beside a run until a process is lost, which may be process 0. Calls `known` when process 0 knows
/// this spare. Returns its number and how many there are; `None` when the run has ended.
pub(super) fn stand_by(
    membership: &Membership,
    program: &str,
    known: impl FnOnce(),
    deadline: Instant,
) -> Result<Option<[u32; 2]>> {
    spare::stand_by(membership, &gate(membership)?, Alike::here(program), known, deadline)
}

/// What a process of this membership proves itself by.
fn gate(membership: &Membership) -> Result<Gate> {
    if membership.tls && membership.secret.is_none() {
        return Err(FabricError::refused(
            "launch.tls needs a secret, by which the processes know each other: make one by `openssl rand \
             -hex 32`, and give it to all processes, as PIPEWRIGHT_TOKEN or in a file that launch.token_file \
             names",
        )
        .into());
    }
    if membership.tls && !cfg!(feature = "tls") {
        return Err(FabricError::refused(
            "launch.tls is true, but this program was built without TLS: build it with `cargo build \
             --release --features tls`",
        )
        .into());
    }
    Ok(Gate {
        process: membership.process,
        tls: membership.tls,
        key: Key::new(membership.secret.as_ref()),
        run: None,
    })
}
