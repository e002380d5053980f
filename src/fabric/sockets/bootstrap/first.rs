//! Process 0: waits for all others, sees that they are alike, and tells each where the others are.

use std::hash::{BuildHasher, RandomState};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::Instant;

use super::alike::objection;
use super::mesh::accept;
use super::message::{Hello, Message, send};
use super::{Known, Membership, anywhere, is_own_name, list};
use crate::error::{Error, Result};

/// The connections to all others, and where each listens.
pub(super) fn gather(
    membership: &Membership,
    hello: impl FnOnce(SocketAddr) -> Hello,
    deadline: Instant,
) -> Result<(Known, Vec<Option<TcpStream>>)> {
    let address = &membership.address;
    let (listener, own) = listen(address).map_err(|error| cannot_listen(address, &error))?;
    let own = hello(own);
    let mut seats: Vec<Option<(TcpStream, Hello)>> = (0..membership.processes).map(|_| None).collect();
    let all = seats.len() == 1
        || accept(&listener, deadline, |stream, message| {
            let Message::Hello(other) = message else {
                return Ok(false);
            };
            let index = other.process as usize;
            let twice = || {
                format!(
                    "two processes came with RANK {}: give each its own",
                    other.process
                )
            };
            let taken = seats.get(index).is_some_and(Option::is_some);
            if let Some(why) = objection(&own, &other).or_else(|| taken.then(twice)) {
                // If it has gone again, so much the better.
                let _ = send(&stream, &Message::Refused(why.clone()));
                return Err(refuse(&seats, why));
            }
            seats[index] = Some((stream, other));
            Ok(seats[1..].iter().all(Option::is_some))
        })?;
    if !all {
        return Err(refuse(&seats, too_late(membership, &seats)));
    }
    welcome(own.address, seats)
}

/// Listens at this address.
fn listen(address: &str) -> io::Result<(TcpListener, SocketAddr)> {
    let mut places: Vec<SocketAddr> = address.to_socket_addrs()?.collect();
    for place in &mut places {
        if is_own_name(address, place.ip()) {
            place.set_ip(anywhere(place.ip()));
        }
    }
    let listener = TcpListener::bind(&places[..])?;
    let own = listener.local_addr()?;
    Ok((listener, own))
}

/// Tells all where the others are.
fn welcome(
    own: SocketAddr,
    seats: Vec<Option<(TcpStream, Hello)>>,
) -> Result<(Known, Vec<Option<TcpStream>>)> {
    let others = seats.iter().flatten().map(|(_, hello)| hello.address);
    let mut addresses: Vec<_> = std::iter::once(own).chain(others).collect();
    let here = here(&seats);
    for address in &mut addresses {
        if address.ip().is_unspecified() {
            address.set_ip(here);
        }
    }
    let known = Known {
        addresses,
        pass: RandomState::new().hash_one(own),
    };
    let welcome = Message::Welcome {
        addresses: known.addresses.clone(),
        pass: known.pass,
    };
    for (stream, hello) in seats.iter().flatten() {
        send(stream, &welcome).map_err(|error| {
            let why = format!("process {} has gone again: {error}", hello.process);
            refuse(&seats, why)
        })?;
    }
    let streams = seats.into_iter().map(|seat| seat.map(|(stream, _)| stream));
    Ok((known, streams.collect()))
}

/// Where this machine is reached by others, if any have come from elsewhere.
fn here(seats: &[Option<(TcpStream, Hello)>]) -> IpAddr {
    let own = seats
        .iter()
        .flatten()
        .filter_map(|(stream, _)| stream.local_addr().ok());
    let mut own = own.map(|address| address.ip()).filter(|ip| !ip.is_loopback());
    own.next().unwrap_or(Ipv4Addr::LOCALHOST.into())
}

/// Tells all who have come why there will be no run.
fn refuse(seats: &[Option<(TcpStream, Hello)>], why: String) -> Error {
    let refusal = Message::Refused(why.clone());
    for (stream, _) in seats.iter().flatten() {
        // One that has gone needs no word.
        let _ = send(stream, &refusal);
    }
    Error::Invalid(why)
}

fn too_late(membership: &Membership, seats: &[Option<(TcpStream, Hello)>]) -> String {
    let missing = (1..membership.processes).filter(|&process| seats[process as usize].is_none());
    format!(
        "process {} of {} did not come to {} within {} s: start it, or give more time (launch.deadline)",
        list(&missing.collect::<Vec<_>>()),
        membership.processes,
        membership.address,
        membership.deadline.as_secs_f64()
    )
}

fn cannot_listen(address: &str, error: &io::Error) -> Error {
    Error::Invalid(match error.kind() {
        ErrorKind::AddrInUse => format!(
            "cannot listen at {address}: the port is in use; end the run that has it, or give all processes another \
             MASTER_PORT or launch.address (under torchrun the port is torchrun's own: set launch.address)"
        ),
        ErrorKind::AddrNotAvailable => format!(
            "cannot listen at {address}: this machine has no such address; start process 0 (RANK=0) on the machine \
             that MASTER_ADDR or launch.address names"
        ),
        _ => format!(
            "cannot listen at {address}: {error}; give host:port in launch.address, or MASTER_ADDR and MASTER_PORT"
        ),
    })
}
