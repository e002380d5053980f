//! How processes find each other: all come to process 0, which tells each where the others are; then each connects to each.

mod alike;
mod first;
mod mesh;
mod message;
mod others;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use super::connection::Connection;
use super::head::Kind;
use crate::error::{Error, Result};
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
}

/// The connections to all other processes.
pub(super) struct Joined {
    /// By process; none for this one.
    pub(super) streams: Vec<Option<TcpStream>>,
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
        return Err(Error::Invalid(format!(
            "RANK is {process} and WORLD_SIZE {processes}: ranks of processes go from 0 to {}",
            processes.saturating_sub(1)
        )));
    }
    let deadline = Instant::now() + membership.deadline;
    let hello = |address| Hello {
        process,
        processes,
        address,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        binary: binary(),
        program: program.to_owned(),
    };
    let (known, streams) = if process == 0 {
        first::gather(membership, hello, deadline)?
    } else {
        let (known, to_first, listener) = others::come(membership, hello, deadline)?;
        let mut streams: Vec<_> = (0..processes).map(|_| None).collect();
        streams[0] = Some(to_first);
        // The others began to wait when the last one came.
        let deadline = Instant::now() + membership.deadline;
        let linked = mesh::connect(process, &known, &listener, deadline, &mut streams);
        linked.inspect_err(|error| give_up(&mut streams, error))?;
        (known, streams)
    };
    let own = known.addresses[process as usize].ip();
    let same = |addresses: &[SocketAddr]| addresses.iter().filter(|address| address.ip() == own).count();
    Ok(Joined {
        streams,
        local_rank: same(&known.addresses[..process as usize]),
        local_size: same(&known.addresses),
    })
}

/// Tells those who are connected already why there will be no run.
fn give_up(streams: &mut [Option<TcpStream>], error: &Error) {
    for stream in streams.iter_mut().filter_map(Option::take) {
        // Whoever cannot be told sees the connection end.
        let _ = Connection::new(stream)
            .and_then(|connection| connection.tell(Kind::Farewell, 0, error.to_string().as_bytes()));
    }
}

/// Whether an address names this machine, by a name that others may know it by too and that leads to itself alone here, as a machine's
/// own name often does. Then it is reached at all its addresses.
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

/// Numbers of processes in words.
fn list(processes: &[u32]) -> String {
    let processes: Vec<_> = processes.iter().map(u32::to_string).collect();
    processes.join(", ")
}

/// A hash of the program's file; 0 where the system does not tell which it is.
fn binary() -> u64 {
    static HASH: OnceLock<u64> = OnceLock::new();
    *HASH.get_or_init(|| {
        let file = std::env::current_exe().and_then(std::fs::read);
        file.map_or(0, |bytes| {
            std::hash::BuildHasher::hash_one(&Plain::default(), bytes)
        })
    })
}

type Plain = std::hash::BuildHasherDefault<std::hash::DefaultHasher>;
