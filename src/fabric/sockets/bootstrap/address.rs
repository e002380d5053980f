//! Where process 0 listens: the addresses of a membership, one or several separated by commas.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::thread;
use std::time::{Duration, Instant};

use super::Membership;
use crate::error::{FabricError, Result};

/// How long a lost process 0 may take to free its port, and the pause between two tries.
const LEAVES: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(20);

/// A place at which process 0 may listen.
struct Place {
    at: SocketAddr,
    /// The address by which others of its machine know it, if that is another one.
    known: Option<IpAddr>,
}

/// Listens at the first place that is free. Returns the address by which this machine knows it.
pub(super) fn listen(membership: &Membership) -> Result<(TcpListener, SocketAddr)> {
    let until = Instant::now() + if membership.replaces { LEAVES } else { Duration::ZERO };
    let places = places(membership)?;
    loop {
        match listen_at(&places) {
            Err(error) if error.kind() == ErrorKind::AddrInUse && Instant::now() < until => {
                thread::sleep(PAUSE);
            }
            listened => {
                let cannot = |source| FabricError::cannot_listen(&membership.address, source);
                return Ok(listened.map_err(cannot)?);
            }
        }
    }
}

fn listen_at(places: &[Place]) -> io::Result<(TcpListener, SocketAddr)> {
    let mut last = io::Error::from(ErrorKind::AddrNotAvailable);
    for Place { at, known } in places {
        match TcpListener::bind(at) {
            Ok(listener) => {
                let mut own = listener.local_addr()?;
                own.set_ip(known.unwrap_or(own.ip()));
                return Ok((listener, own));
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Whether one of the places is on this machine.
pub(super) fn has_own(membership: &Membership) -> bool {
    // The port itself may be process 0's.
    let is_own = |place: Place| TcpListener::bind((place.at.ip(), 0)).is_ok();
    places(membership).is_ok_and(|places| places.into_iter().any(is_own))
}

/// Whether there are several.
pub(super) fn are_several(membership: &Membership) -> bool {
    names(&membership.address).nth(1).is_some()
}

fn places(membership: &Membership) -> Result<Vec<Place>> {
    let found = resolved(&membership.address)
        .map_err(|source| FabricError::cannot_listen(&membership.address, source))?;
    let place = |(name, mut at): (&str, SocketAddr)| {
        let is_own = is_own_name(name, at.ip());
        if membership.secret.is_none() {
            // Others may come to it by another address of this machine.
            let known = match at.ip() {
                IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
                IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
            };
            return at.ip().is_loopback().then_some(Place { at, known: is_own.then_some(known) });
        }
        if is_own {
            at.set_ip(anywhere(at.ip()));
        }
        Some(Place { at, known: None })
    };
    let places: Vec<_> = found.into_iter().filter_map(place).collect();
    match places.is_empty() && membership.secret.is_none() {
        true => Err(FabricError::needs_secret(&membership.address).into()),
        false => Ok(places),
    }
}

/// Connects to the first of the addresses that accepts. Each may take so long. `own_only`: only to addresses
/// of this machine alone. Each `attempt` begins with another address.
pub(super) fn connect(
    address: &str,
    own_only: bool,
    attempt: usize,
    time: Duration,
) -> io::Result<TcpStream> {
    let mut last = io::Error::from(ErrorKind::AddrNotAvailable);
    let mut found = resolved(address)?;
    found.retain(|(_, at)| !own_only || at.ip().is_loopback());
    let count = found.len().max(1);
    found.rotate_left(attempt % count);
    for (_, at) in found {
        match TcpStream::connect_timeout(&at, time) {
            // The system may give the connecting end the very port that it connects to. Then the process
            // would be connected with itself.
            Ok(stream) if stream.local_addr()? == at => {}
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Where the addresses lead, in order. One of several may lead nowhere: its machine may be lost.
fn resolved(address: &str) -> io::Result<Vec<(&str, SocketAddr)>> {
    let (mut found, mut failure) = (Vec::new(), None);
    for name in names(address) {
        match name.to_socket_addrs() {
            Ok(all) => found.extend(all.map(|at| (name, at))),
            Err(error) => failure = Some(error),
        }
    }
    match failure.filter(|_| found.is_empty()) {
        Some(error) => Err(error),
        None => Ok(found),
    }
}

fn names(address: &str) -> impl Iterator<Item = &str> {
    address.split(',').map(str::trim)
}

/// Whether the addresses lead only to other hosts, or can be reached from them.
pub(super) fn leads_away(address: &str) -> bool {
    let found = resolved(address).unwrap_or_default();
    !found.is_empty() && !found.iter().any(|(_, at)| at.ip().is_loopback())
}

/// Whether one of the addresses is a name of this machine: see [`is_own_name`].
pub(super) fn has_own_name(address: &str, ip: IpAddr) -> bool {
    names(address).any(|name| is_own_name(name, ip))
}

/// Whether an address is a name of this machine that others may know too, but that leads only to this machine
/// itself here. A machine's own name is often like that. Then process 0 listens at all its addresses.
fn is_own_name(name: &str, ip: IpAddr) -> bool {
    let host = name.rsplit_once(':').map_or(name, |(host, _)| host);
    let literal = host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
    ip.is_loopback() && !literal && host != "localhost"
}

/// All addresses of this machine, of the same kind as `ip`.
pub(super) fn anywhere(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}
