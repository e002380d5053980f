//! How processes find each other: all come to process 0, which tells each where the others are; then each
//! connects to each.

mod alike;
mod desk;
mod first;
mod message;
mod others;
mod peer;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::sync::OnceLock;
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::error::{FabricError, Result};
use message::Hello;

/// A process's place in a run of several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    /// Its number, from 0.
    pub process: u32,
    /// How many there are.
    pub processes: u32,
    /// Where process 0 listens: host and port.
    pub address: String,
    /// How long to wait for the others.
    pub deadline: Duration,
    /// How long nothing may be heard of another machine before it counts as gone: [`Membership::SILENCE`]
    /// when not said. A process that is stopped is not gone, however long: its machine still answers.
    pub silence: Duration,
}

impl Membership {
    /// A machine that is paused for a minute comes back.
    pub const SILENCE: Duration = Duration::from_secs(90);
}

/// How many connections there are between two processes.
const LINES: usize = 2;

/// The connections between two processes.
pub(super) struct Lines {
    /// What carries frames.
    pub(super) data: TcpStream,
    /// It is idle, but for the question of a process that shall end whether the other is there. So the system
    /// can tell by it that the other machine has gone.
    pub(super) watch: TcpStream,
}

/// The connections to all other processes.
pub(super) struct Joined {
    /// By process; none for this one.
    pub(super) lines: Vec<Option<Lines>>,
    /// This process's number among those of its machine, from 0.
    pub(super) local_rank: usize,
    /// How many there are on its machine.
    pub(super) local_size: usize,
}

/// Where every process is, as all know when the last one has come.
struct Known {
    addresses: Vec<SocketAddr>,
    /// What shows that whoever connects belongs to the run.
    pass: u64,
}

pub(super) fn join(membership: &Membership, program: &str) -> Result<Joined> {
    let Membership {
        process, processes, ..
    } = *membership;
    if process >= processes {
        return Err(FabricError::NoSuchProcess { process, processes }.into());
    }
    // It takes a moment, and nobody has to wait for it.
    binary();
    let hello = |address| Hello {
        process,
        processes,
        address,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        program: program.to_owned(),
        proof: [0; 32],
    };
    let (known, lines) = if process == 0 {
        first::gather(membership, hello)?
    } else {
        others::come(membership, hello)?
    };
    let own = known.addresses[process as usize].ip();
    let same = |addresses: &[SocketAddr]| addresses.iter().filter(|address| address.ip() == own).count();
    Ok(Joined {
        lines,
        local_rank: same(&known.addresses[..process as usize]),
        local_size: same(&known.addresses),
    })
}

/// Whether an address names this machine, by a name that others may know it by too and that leads to itself
/// alone here, as a machine's own name often does. Then it is reached at all its addresses.
fn is_own_name(address: &str, ip: IpAddr) -> bool {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let literal = host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
    ip.is_loopback() && !literal && host != "localhost"
}

/// All addresses of this machine, of the kind that `ip` is of.
fn anywhere(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// A hash of the program's file; zeros where the system does not tell which it is.
fn binary() -> &'static [u8; 32] {
    static HASH: OnceLock<[u8; 32]> = OnceLock::new();
    HASH.get_or_init(|| {
        let file = std::env::current_exe().and_then(std::fs::read);
        file.map_or([0; 32], |bytes| Sha256::digest(bytes).into())
    })
}
