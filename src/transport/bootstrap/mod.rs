//! How processes find each other: all come to process 0, which tells each where the others are; then each connects to each.

mod alike;
mod first;
mod mesh;
mod message;
mod others;

use std::net::{SocketAddr, TcpStream};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

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
    /// This process's place among those of its machine, and how many there are.
    pub(super) place: (usize, usize),
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
        let streams = mesh::connect(membership, &known, to_first, &listener, deadline)?;
        (known, streams)
    };
    let own = known.addresses[process as usize].ip();
    let same = |addresses: &[SocketAddr]| addresses.iter().filter(|address| address.ip() == own).count();
    let place = (same(&known.addresses[..process as usize]), same(&known.addresses));
    Ok(Joined { streams, place })
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
