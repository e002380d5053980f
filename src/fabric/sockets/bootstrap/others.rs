//! The other processes: each comes to process 0 and waits until all have come.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::thread;
use std::time::{Duration, Instant};

use super::message::{Hello, Message, left, receive, send};
use super::{Known, Membership, anywhere, is_own_name};
use crate::error::{Error, Result};

/// How often process 0 is looked for.
const PAUSE: Duration = Duration::from_millis(20);

/// What process 0 may take longer: its deadline began later, and it says so when it gives up.
const GRACE: Duration = Duration::from_secs(2);

/// Where all are, the connection to process 0, and where this process listens for those of higher numbers.
pub(super) fn come(
    membership: &Membership,
    hello: impl FnOnce(SocketAddr) -> Hello,
    deadline: Instant,
) -> Result<(Known, TcpStream, TcpListener)> {
    let address = &membership.address;
    let stream = reach(membership, deadline)?;
    let cannot = |error: io::Error| Error::Invalid(format!("cannot listen for the others: {error}"));
    // At the address by which it reaches process 0 the others, which do so too, can reach it.
    let own = stream.local_addr().map_err(cannot)?.ip();
    let own = if is_own_name(address, own) {
        anywhere(own)
    } else {
        own
    };
    let listener = TcpListener::bind((own, 0)).map_err(cannot)?;
    let hello = hello(listener.local_addr().map_err(cannot)?);
    let said = send(&stream, &Message::Hello(hello)).and_then(|()| receive(&stream, deadline + GRACE));
    let foreign = || {
        Error::Invalid(format!(
            "what listens at {address} is no process 0 of this program: it answers in another protocol; give all processes \
             another MASTER_PORT or launch.address"
        ))
    };
    match said {
        Ok(Message::Welcome { addresses, pass }) if addresses.len() == membership.processes as usize => {
            Ok((Known { addresses, pass }, stream, listener))
        }
        Ok(Message::Refused(why)) => Err(Error::Invalid(why)),
        Ok(_) => Err(foreign()),
        Err(error) if error.kind() == ErrorKind::InvalidData => Err(foreign()),
        Err(error) if [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&error.kind()) => {
            Err(Error::Invalid(format!(
                "what listens at {address} has said nothing for {} s: is it process 0 of this run?",
                membership.deadline.as_secs_f64()
            )))
        }
        Err(error) => Err(Error::Invalid(format!(
            "process 0 at {address} has ended the connection ({error}): its own output says why; or another program \
             listens there"
        ))),
    }
}

/// Connects to process 0, as soon as it listens.
fn reach(membership: &Membership, deadline: Instant) -> Result<TcpStream> {
    loop {
        match attempt(&membership.address, deadline) {
            Ok(stream) => return Ok(stream),
            Err(_) if Instant::now() + PAUSE < deadline => thread::sleep(PAUSE),
            Err(error) => {
                return Err(Error::Invalid(format!(
                    "cannot reach process 0 at {} within {} s ({error}): start process 0 there, or give more time \
                     (launch.deadline)",
                    membership.address,
                    membership.deadline.as_secs_f64()
                )));
            }
        }
    }
}

/// The first of the addresses that takes a connection.
fn attempt(address: &str, deadline: Instant) -> io::Result<TcpStream> {
    let mut last = io::Error::from(ErrorKind::AddrNotAvailable);
    for address in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, left(deadline)) {
            // A port that nobody listens at can be given to whoever connects to it: that would be this process itself.
            Ok(stream) if stream.local_addr()? == address => {}
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}
