//! All processes but process 0: each connects to process 0, waits until all have, and connects with each.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::acceptor::{Acceptor, Event};
use super::message::{Hello, Message, left, receive, send};
use super::peer::Table;
use super::{Known, Membership, Pair, anywhere, is_own_name};
use crate::error::{FabricError, Result};
use crate::fabric::processes::{binary, plain};

/// The pause between two tries to reach process 0.
const PAUSE: Duration = Duration::from_millis(20);

/// How much longer to wait for process 0. Its own deadline began later, and it says when it gives up.
const GRACE: Duration = Duration::from_secs(2);

/// How long one of several addresses may be silent.
const ONE_ADDRESS: Duration = Duration::from_secs(2);

/// The addresses of all processes, and the connections to the others.
pub(super) fn come(
    membership: &Membership,
    hello: impl FnOnce(SocketAddr) -> Hello,
) -> Result<(Known, Vec<Option<Pair>>)> {
    let deadline = Instant::now() + membership.deadline;
    let address = &membership.address;
    let (first, challenge) = reach(membership, deadline)?;
    let cannot = |source: io::Error| FabricError::CannotListen {
        address: "a free port".to_owned(),
        source: Arc::new(source),
    };
    // This process reaches process 0 from this address. So the others, which reach process 0 too, can use it.
    let own = first.local_addr().map_err(cannot)?.ip();
    let own = if is_own_name(address, own) {
        anywhere(own)
    } else {
        own
    };
    let listener = TcpListener::bind((own, 0)).map_err(cannot)?;
    let mut hello = hello(listener.local_addr().map_err(cannot)?);
    hello.proof = hello.proof(binary(), challenge);
    let known = introduce(membership, &first, hello, deadline)?;
    // The others began to wait when the last process connected.
    let deadline = Instant::now() + membership.deadline;
    let acceptor = Acceptor::new(listener).map_err(cannot)?;
    acceptor.hear(0, &first, 1, deadline + GRACE).map_err(cannot)?;
    let at = first.peer_addr().map_err(cannot)?;
    let mut table = Table::new(membership.process, membership.processes, at);
    let connected = connect(&acceptor, &mut table, &known, deadline);
    if let Err(error) = &connected {
        // If process 0 has gone, it has told the others why.
        let _ = send(&first, &Message::Failed(error.to_string()));
    }
    connected?;
    send(&first, &Message::Connected).map_err(|error| unheard(membership, error))?;
    wait_until_ready(&acceptor, deadline + GRACE)?;
    Ok((known, table.lines()))
}

/// Says hello to process 0, and waits until it has heard all and tells their addresses.
fn introduce(membership: &Membership, first: &TcpStream, hello: Hello, deadline: Instant) -> Result<Known> {
    let said = send(first, &Message::Hello(hello)).and_then(|()| receive(first, deadline + GRACE));
    match said {
        Ok(Message::Welcome { addresses, pass }) if addresses.len() == membership.processes as usize => {
            Ok(Known { addresses, pass })
        }
        Ok(Message::Refused(why)) => Err(FabricError::Refused { cause: plain(&why) }.into()),
        Ok(_) => Err(foreign(&membership.address).into()),
        Err(error) => Err(unheard(membership, error).into()),
    }
}

/// Connects to the processes with lower numbers, and waits for those with higher ones.
fn connect(acceptor: &Acceptor, table: &mut Table, known: &Known, deadline: Instant) -> Result<()> {
    table.reach_lower(known, deadline)?;
    loop {
        let processes = table.missing();
        if processes.is_empty() {
            return Ok(());
        }
        match acceptor.next(deadline) {
            Some(Event::Came(stream, message, _)) => table.take(stream, &message, known.pass),
            Some(Event::Said(_, said)) => ready(said)?,
            None => {
                let process = table.process();
                return Err(FabricError::NotConnected { process, processes }.into());
            }
        }
    }
}

/// Waits until process 0 says that all are connected.
fn wait_until_ready(acceptor: &Acceptor, deadline: Instant) -> Result<()> {
    loop {
        match acceptor.next(deadline) {
            Some(Event::Said(_, said)) => return ready(said),
            // All have connected already.
            Some(Event::Came(..)) => {}
            None => return Err(FabricError::Vanished { process: 0 }.into()),
        }
    }
}

/// The last message of process 0: all are connected, or there is no run.
fn ready(said: io::Result<Message>) -> Result<()> {
    match said {
        Ok(Message::Ready) => Ok(()),
        Ok(Message::Refused(why)) => Err(FabricError::Refused { cause: plain(&why) }.into()),
        Ok(_) | Err(_) => Err(FabricError::Vanished { process: 0 }.into()),
    }
}

fn foreign(address: &str) -> FabricError {
    FabricError::Foreign {
        address: address.to_owned(),
    }
}

/// Why process 0 did not answer.
fn unheard(membership: &Membership, error: io::Error) -> FabricError {
    let address = membership.address.clone();
    match error.kind() {
        ErrorKind::InvalidData => FabricError::Foreign { address },
        ErrorKind::WouldBlock | ErrorKind::TimedOut => FabricError::Silent {
            address,
            seconds: membership.deadline.as_secs_f64(),
        },
        _ => FabricError::FirstGone {
            address,
            source: Arc::new(error),
        },
    }
}

/// Connects to process 0 once it listens. Returns the connection and its challenge.
fn reach(membership: &Membership, deadline: Instant) -> Result<(TcpStream, u64)> {
    loop {
        let error = match connect_any(&membership.address, deadline) {
            Ok(stream) => match receive(&stream, deadline + GRACE) {
                Ok(Message::Challenge(challenge)) => return Ok((stream, challenge)),
                Ok(_) => return Err(foreign(&membership.address).into()),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => error,
                Err(error) => return Err(unheard(membership, error).into()),
            },
            Err(error) => error,
        };
        if Instant::now() + PAUSE >= deadline {
            return Err(FabricError::CannotReach {
                address: membership.address.clone(),
                seconds: membership.deadline.as_secs_f64(),
                source: Arc::new(error),
            }
            .into());
        }
        thread::sleep(PAUSE);
    }
}

/// Connects to the first of the addresses that accepts.
fn connect_any(address: &str, deadline: Instant) -> io::Result<TcpStream> {
    let mut last = io::Error::from(ErrorKind::AddrNotAvailable);
    let addresses: Vec<SocketAddr> = address.to_socket_addrs()?.collect();
    for address in &addresses {
        // One of several addresses may not answer at all. Leave time for the others.
        let most = if addresses.len() > 1 {
            ONE_ADDRESS
        } else {
            Duration::MAX
        };
        match TcpStream::connect_timeout(address, left(deadline).min(most)) {
            // The system may give the connecting end the very port that it connects to. Then the process
            // would be connected with itself.
            Ok(stream) if stream.local_addr()? == *address => {}
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}
