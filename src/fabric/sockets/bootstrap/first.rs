//! Process 0: waits for all others, checks that they belong to the run, and tells each one all addresses.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::Instant;

use super::acceptor::{Acceptor, Event};
use super::alike::objection;
use super::message::{Hello, Message, send};
use super::peer::Table;
use super::{Known, Membership, Pair, anywhere, is_own_name};
use crate::error::{FabricError, Result};
use crate::fabric::processes::{binary, other_build, plain};

/// Process 0 and the processes that have connected.
struct Gathering<'a> {
    membership: &'a Membership,
    own: Hello,
    acceptor: Acceptor,
    /// By process.
    members: Vec<Option<(TcpStream, Hello)>>,
    /// Which processes were refused, and why.
    turned_away: Vec<String>,
    deadline: Instant,
}

/// The connections to all others, and where each process listens.
pub(super) fn gather(
    membership: &Membership,
    hello: impl FnOnce(SocketAddr) -> Hello,
) -> Result<(Known, Vec<Option<Pair>>)> {
    let address = &membership.address;
    let cannot = |source: io::Error| FabricError::CannotListen {
        address: address.clone(),
        source: Arc::new(source),
    };
    let (listener, own) = listen(address).map_err(cannot)?;
    let mut gathering = Gathering {
        membership,
        own: hello(own),
        acceptor: Acceptor::new(listener).map_err(cannot)?,
        members: (0..membership.processes).map(|_| None).collect(),
        turned_away: Vec::new(),
        deadline: Instant::now() + membership.deadline,
    };
    let joined = gathering.admit_all().and_then(|()| gathering.connect());
    joined.inspect_err(|error| gathering.tell_all(&Message::Refused(error.to_string())))
}

impl Gathering<'_> {
    /// Waits until all other processes have connected.
    fn admit_all(&mut self) -> Result<()> {
        while self.members[1..].iter().any(Option::is_none) {
            match self.acceptor.next(self.deadline) {
                Some(Event::Came(stream, Message::Hello(hello), challenge)) => {
                    self.admit(stream, hello, challenge)?;
                }
                Some(Event::Came(..)) => {}
                Some(Event::Said(process, _)) => return Err(FabricError::Vanished { process }.into()),
                None => return Err(self.too_late().into()),
            }
        }
        Ok(())
    }

    /// Admits a new process. A process that runs another program is refused, and all others continue
    /// to wait.
    fn admit(&mut self, stream: TcpStream, hello: Hello, challenge: u64) -> Result<()> {
        if hello.proof != hello.proof(binary(), challenge) {
            let why = other_build(hello.process, [&self.own.version, &hello.version]);
            // If it has gone already, nothing is lost.
            let _ = send(&stream, &Message::Refused(why.clone()));
            self.turned_away.push(why);
            return Ok(());
        }
        let process = hello.process;
        let member = self.members.get(process as usize);
        let twice = || format!("two processes came with RANK {process}: give each its own");
        let taken = member.is_some_and(Option::is_some).then(twice);
        if let Some(cause) = objection(&self.own, &hello).or(taken) {
            // As above.
            let _ = send(&stream, &Message::Refused(cause.clone()));
            return Err(FabricError::Refused { cause }.into());
        }
        // From here until all are connected.
        let deadline = self.deadline + self.membership.deadline;
        self.acceptor
            .hear(process, &stream, 1, deadline)
            .map_err(|_| FabricError::Vanished { process })?;
        self.members[process as usize] = Some((stream, hello));
        Ok(())
    }

    /// Tells all processes the addresses, and waits until each is connected with each.
    fn connect(&mut self) -> Result<(Known, Vec<Option<Pair>>)> {
        let known = self.known();
        self.tell_all(&Message::Welcome {
            addresses: known.addresses.clone(),
            pass: known.pass,
        });
        let mut table = Table::new(0, self.membership.processes, self.own.address);
        let mut connected = 1;
        let deadline = Instant::now() + self.membership.deadline;
        while connected < self.members.len() || !table.missing().is_empty() {
            match self.acceptor.next(deadline) {
                Some(Event::Came(stream, message, _)) => table.take(stream, &message, known.pass),
                Some(Event::Said(_, Ok(Message::Connected))) => connected += 1,
                Some(Event::Said(process, Ok(Message::Failed(why)))) => {
                    let cause = format!("process {process}: {}", plain(&why));
                    return Err(FabricError::Refused { cause }.into());
                }
                Some(Event::Said(process, _)) => return Err(FabricError::Vanished { process }.into()),
                None => {
                    let processes = table.missing();
                    return Err(FabricError::NotConnected {
                        process: 0,
                        processes,
                    }
                    .into());
                }
            }
        }
        self.tell_all(&Message::Ready);
        Ok((known, table.lines()))
    }

    fn known(&self) -> Known {
        let others = self.members.iter().flatten().map(|(_, hello)| hello.address);
        let mut addresses: Vec<_> = std::iter::once(self.own.address).chain(others).collect();
        let here = here(&self.members);
        for address in &mut addresses {
            if address.ip().is_unspecified() {
                address.set_ip(here);
            }
        }
        let pass = RandomState::new().hash_one(Instant::now());
        Known { addresses, pass }
    }

    /// Tells all processes that have connected. If one has gone, its receiver notices it.
    fn tell_all(&self, message: &Message) {
        for (stream, _) in self.members.iter().flatten() {
            let _ = send(stream, message);
        }
    }

    fn too_late(&mut self) -> FabricError {
        let missing =
            (1..self.membership.processes).filter(|&process| self.members[process as usize].is_none());
        FabricError::Missing {
            processes: missing.collect(),
            of: self.membership.processes,
            address: self.membership.address.clone(),
            seconds: self.membership.deadline.as_secs_f64(),
            turned_away: std::mem::take(&mut self.turned_away),
        }
    }
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

/// The address at which other machines reach this one, if any process is on another machine.
fn here(members: &[Option<(TcpStream, Hello)>]) -> IpAddr {
    let own = members
        .iter()
        .flatten()
        .filter_map(|(stream, _)| stream.local_addr().ok());
    let mut own = own.map(|address| address.ip()).filter(|ip| !ip.is_loopback());
    own.next().unwrap_or(Ipv4Addr::LOCALHOST.into())
}
