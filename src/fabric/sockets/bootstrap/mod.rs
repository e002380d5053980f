//! How processes find each other. All connect to process 0, which tells each one the addresses of the others.
//! Then each connects to each.

mod acceptor;
mod alike;
mod first;
mod message;
mod others;
mod peer;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::Duration;

use crate::error::{FabricError, Result};
use crate::fabric::processes::binary;
use message::Hello;

/// A process's place in a run of several processes.
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
    /// How long another machine may be silent before it counts as gone. [`Membership::SILENCE`] is the usual
    /// value. A stopped process is not gone, because its machine still answers.
    pub silence: Duration,
}

impl Membership {
    /// Longer than a machine that is paused for a minute.
    pub const SILENCE: Duration = Duration::from_secs(90);
}

/// How many connections there are between two processes.
const LINES: usize = 2;

/// The connections between two processes.
pub(super) struct Pair {
    /// The connection for frames.
    pub(super) data: TcpStream,
    /// Nothing is ever written here. So it ends only when the other process or its machine has gone.
    pub(super) watch: TcpStream,
}

/// The connections to all other processes.
pub(super) struct Joined {
    /// By process. `None` for this one.
    pub(super) pairs: Vec<Option<Pair>>,
    /// The processes on this one's machine, with this one, in order.
    pub(super) local: Vec<u32>,
}

/// Where every process is. All know it once the last one has connected.
struct Known {
    addresses: Vec<SocketAddr>,
    /// The secret that shows who belongs to the run.
    pass: u64,
}

pub(super) fn join(membership: &Membership, program: &str) -> Result<Joined> {
    let Membership {
        process, processes, ..
    } = *membership;
    if process >= processes {
        return Err(FabricError::NoSuchProcess { process, processes }.into());
    }
    // It takes a moment, so it is done before anybody waits for it.
    binary();
    let hello = |address| Hello {
        process,
        processes,
        address,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        program: program.to_owned(),
        proof: [0; 32],
    };
    let (known, pairs) = if process == 0 {
        first::gather(membership, hello)?
    } else {
        others::come(membership, hello)?
    };
    let own = known.addresses[process as usize].ip();
    let all = (0..).zip(&known.addresses);
    let local = all.filter_map(|(number, address)| (address.ip() == own).then_some(number));
    Ok(Joined {
        pairs,
        local: local.collect(),
    })
}

/// Whether an address is a name of this machine that others may know too, but that leads only to this machine
/// itself here. A machine's own name is often like that. Then process 0 listens at all its addresses.
fn is_own_name(address: &str, ip: IpAddr) -> bool {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let literal = host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
    ip.is_loopback() && !literal && host != "localhost"
}

/// All addresses of this machine, of the same kind as `ip`.
fn anywhere(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}
