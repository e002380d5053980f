//! Process 0: waits for all others, checks that they belong to the run, and tells each one all addresses.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::acceptor::{Acceptor, Arrival, Event};
use super::admission::{Waiting, tell_known};
use super::alike::{objection, other_tls};
use super::members::reach_first;
use super::message::{Hello, Message, send};
use super::peer::Table;
use super::reach::First;
use super::{GRACE, Known, LATE, Membership, Pair, address};
use crate::error::{Error, FabricError, RestartError, Result, list};
use crate::fabric::processes::plain;
use crate::fabric::sockets::channel::Channel;
use crate::fabric::sockets::handshake::{Gate, Purpose};
use crate::interrupt::Interrupt;

/// The longest time between two looks at who is missing.
const MOMENT: Duration = Duration::from_millis(100);

/// Process 0 and the processes that have connected.
struct Gathering<'a> {
    membership: &'a Membership,
    own: Hello,
    waiting: Waiting,
    /// The processes that were lost, as far as this one knows, if the run replaces them.
    lost: BTreeSet<u32>,
    /// Since when it waits, and when a spare was asked to take a place.
    since: Instant,
    asked: BTreeMap<u32, Instant>,
    /// By process.
    members: Vec<Option<(Arc<Channel>, Hello)>>,
    /// For which processes somebody came that does not belong to the run.
    unproven: BTreeSet<u32>,
    /// The processes of an earlier run that were sent away, and why.
    left_over: BTreeMap<u32, String>,
    deadline: Instant,
}

/// The connections to all others, where each process listens, and who waits at the door for a loss. If the
/// run goes on: the processes that were `lost`, those that are `absent`, and who is `waiting`.
pub(super) fn gather(
    membership: &Membership,
    (gate, interrupt): (Gate, Interrupt),
    hello: impl Fn(SocketAddr) -> Hello,
    (lost, absent, waiting): (&[u32], &[u32], Option<Waiting>),
    deadline: Instant,
) -> Result<(Known, Vec<Option<Pair>>, Waiting)> {
    let mut waiting = waiting.map_or_else(|| listen(membership, gate, &hello), Ok)?;
    waiting.acceptor.wake(interrupt);
    waiting.absent.extend(absent);
    let mut gathering = Gathering {
        membership,
        own: hello(waiting.at),
        waiting,
        lost: lost.iter().copied().collect(),
        since: Instant::now(),
        asked: BTreeMap::new(),
        members: (0..membership.processes).map(|_| None).collect(),
        unproven: BTreeSet::new(),
        left_over: BTreeMap::new(),
        deadline,
    };
    loop {
        let joined = gathering.admit_all().and_then(|()| gathering.connect());
        match joined {
            Ok((known, pairs)) => {
                gathering.waiting.run = Some(known.first);
                return Ok((known, pairs, gathering.waiting));
            }
            Err(error) if gathering.begins_anew(&error) => gathering.begin_anew(),
            Err(error) => {
                let refused = Message::Refused(error.to_string());
                gathering.tell_all(&refused);
                if error.is_end_of_wait() {
                    gathering.tell_late(&refused);
                }
                gathering.waiting.end();
                return Err(error);
            }
        }
    }
}

/// Listens where the membership says.
fn listen(membership: &Membership, gate: Gate, hello: impl Fn(SocketAddr) -> Hello) -> Result<Waiting> {
    if address::are_several(membership) {
        refuse_another(membership, &gate)?;
    }
    let (listener, at) = address::listen(membership)?;
    let cannot = |source: io::Error| FabricError::cannot_listen(&membership.address, source);
    let acceptor = Acceptor::new(listener, gate).map_err(cannot)?;
    Ok(Waiting::at(at, acceptor, hello(at).alike, (membership.processes, membership.silence)))
}

/// Refuses to be a second process 0, which listens at another address.
fn refuse_another(membership: &Membership, gate: &Gate) -> Result<()> {
    let soon = Instant::now() + GRACE;
    match reach_first(membership, (gate, None, First::Listens), Purpose::Spare, soon) {
        Ok(first) => {
            let at = first.there().map_or_else(|_| membership.address.clone(), |at| at.to_string());
            Err(FabricError::refused(format!(
                "another process 0 of this run is at {at}: do not start a second one; `--spare` waits beside \
                 the run"
            ))
            .into())
        }
        Err(_) => Ok(()),
    }
}

impl Gathering<'_> {
    /// Whether the run goes on after processes were lost.
    fn goes_on(&self) -> bool {
        self.own.was_in.is_some()
    }

    /// Whether all begin to connect once more, after this error: a process was lost meanwhile.
    fn begins_anew(&self, error: &Error) -> bool {
        let is_loss = matches!(error, Error::Fabric(error) if matches!(**error, FabricError::Lost(_)));
        let replaced = self.membership.replaces && is_loss;
        (replaced || self.goes_on() && !error.is_end_of_wait()) && Instant::now() < self.deadline
    }

    /// A process was lost while all were connecting. All others come again.
    fn begin_anew(&mut self) {
        self.since = Instant::now();
        for (channel, _) in self.members.iter_mut().filter_map(Option::take) {
            channel.close();
        }
        self.waiting.acceptor.begin_anew();
    }

    /// Waits until all other processes have connected.
    fn admit_all(&mut self) -> Result<()> {
        let early = self.waiting.take_early();
        let (early, mut doubles): (Vec<Arrival>, Vec<Arrival>) =
            early.into_iter().partition(|early| self.may_come(early));
        for arrival in early {
            self.admit(arrival)?;
        }
        while self.missing().next().is_some() {
            self.call_spares();
            if Instant::now() > self.since + LATE {
                for arrival in doubles.drain(..) {
                    self.admit(arrival)?;
                }
            }
            let moment = self.deadline.min(Instant::now() + MOMENT);
            match self.waiting.acceptor.next(moment) {
                Some(Event::Came(arrival)) if arrival.purpose == Purpose::Join => {
                    match self.may_come(&arrival) {
                        true => self.admit(arrival)?,
                        false => doubles.extend(Some(arrival).filter(tell_known)),
                    }
                }
                Some(Event::Came(arrival)) => self.waiting.take(arrival),
                Some(Event::Unproven(process)) => {
                    // It may call itself anything.
                    if (1..self.membership.processes).contains(&process) {
                        self.unproven.insert(process);
                    }
                }
                Some(Event::Said(process, Ok(Message::Interrupted))) if !self.is_newcomer(process) => {
                    return Err(interrupted(process));
                }
                Some(Event::Interrupted) => return Err(interrupted(0)),
                Some(Event::Said(process, _)) if self.membership.replaces => {
                    self.lost.insert(process);
                    self.members[process as usize] = None;
                }
                Some(Event::Said(process, _)) => return Err(FabricError::vanished(process).into()),
                None if Instant::now() < self.deadline => {}
                None if self.goes_on() && self.present() >= self.membership.fewest => {
                    self.waiting.absent = self.missing().chain(self.waiting.absent.clone()).collect();
                    self.deadline = Instant::now() + LATE;
                }
                None => return Err(self.too_late().into()),
            }
        }
        doubles.drain(..).for_each(|double| self.waiting.keep(double));
        Ok(())
    }

    /// Whether one that came has a place for certain. Else a process of its number may still be there, and is
    /// waited for first.
    fn may_come(&self, arrival: &Arrival) -> bool {
        let process = arrival.process;
        let is_new = arrival.hello.as_ref().is_none_or(|hello| hello.was_in.is_none());
        let is_free = self.lost.contains(&process) || self.waiting.absent.contains(&process);
        is_free || !is_new || !self.goes_on()
    }

    /// Whether this process has come to a run that goes on, and was not in it. The run need not end with it.
    fn is_newcomer(&self, process: u32) -> bool {
        let member = self.members.get(process as usize).and_then(Option::as_ref);
        self.goes_on() && member.is_some_and(|(_, hello)| hello.was_in.is_none())
    }

    /// The processes that have not come, except for those without which the run goes on.
    fn missing(&self) -> impl Iterator<Item = u32> {
        (1..self.membership.processes).filter(|process| {
            self.members[*process as usize].is_none() && !self.waiting.absent.contains(process)
        })
    }

    /// How many processes there are, with this one.
    fn present(&self) -> u32 {
        1 + self.members.iter().flatten().count() as u32
    }

    /// Asks spares to take the places of processes that were lost. One that does not come has gone itself, so
    /// the next one is asked.
    fn call_spares(&mut self) {
        let now = Instant::now();
        let late = self.goes_on() && now > self.since + LATE;
        for process in 1..self.membership.processes {
            let is_lost = self.lost.contains(&process) || late;
            let is_asked = self.asked.get(&process).is_some_and(|at| now < *at + LATE);
            if !is_lost || is_asked || self.members[process as usize].is_some() {
                continue;
            }
            if self.waiting.call(process) {
                self.asked.insert(process, now);
            }
        }
    }

    /// Admits a process that has proved that it belongs to the run.
    fn admit(&mut self, arrival: Arrival) -> Result<()> {
        let Arrival { channel, process, .. } = arrival;
        let member = self.members.get(process as usize);
        let twice = || format!("two processes came with RANK {process}: give each its own");
        let taken = member.is_some_and(Option::is_some).then(twice);
        // Another process 0 was lost, and this one takes its place: the others know the run.
        let known =
            arrival.hello.as_ref().filter(|_| self.membership.replaces).and_then(|hello| hello.was_in);
        let own = Hello { was_in: self.own.was_in.or(known), ..self.own.clone() };
        let objection = match &arrival.hello {
            None => Some(other_tls(&format!("process {process}"), arrival.tls)),
            Some(hello) => objection(&own, process, hello).or(taken),
        };
        match (objection, arrival.hello) {
            (None, Some(hello)) => {
                if !self.goes_on() {
                    let others = 1..self.membership.processes;
                    self.waiting.absent.extend(hello.absent.iter().filter(|number| others.contains(number)));
                }
                self.own = own;
                self.waiting.run = self.own.was_in;
                // The deadline itself is not the end of this process.
                self.waiting
                    .acceptor
                    .hear(process, &channel, self.deadline + LATE + GRACE)
                    .map_err(|_| FabricError::vanished(process))?;
                self.members[process as usize] = Some((channel, hello));
                self.waiting.absent.remove(&process);
                self.waiting.asked.remove(&process);
                Ok(())
            }
            (objection, hello) => {
                let cause = objection.unwrap_or_default();
                // If it has gone already, nothing is lost.
                let _ = send(&channel, &Message::Refused(cause.clone()), self.deadline);
                if self.goes_on() {
                    // If it was a spare, the next one is asked at once.
                    self.asked.remove(&process);
                    return Ok(());
                }
                if hello.is_some_and(|hello| hello.was_in.is_some()) {
                    // It is left over from a run whose processes are all started again.
                    self.left_over.insert(process, cause);
                    return Ok(());
                }
                Err(FabricError::refused(cause).into())
            }
        }
    }

    /// Tells all processes the addresses, and waits until each is connected with each.
    fn connect(&mut self) -> Result<(Known, Vec<Option<Pair>>)> {
        let known = self.known().map_err(|source| FabricError::cannot_set_up(0, source))?;
        let run = self.waiting.acceptor.gate().key.of_run(&known.run);
        self.waiting.acceptor.open(run);
        self.tell_all(&Message::Welcome {
            addresses: known.addresses.clone(),
            numbers: known.numbers.clone(),
            run: known.run,
            first: known.first,
        });
        let mut table = Table::new(0, known.numbers.clone(), self.own.address);
        let mut connected = 1;
        while connected < known.numbers.len() || !table.missing().is_empty() {
            match self.waiting.acceptor.next(self.deadline) {
                Some(Event::Came(arrival)) => match arrival.purpose {
                    Purpose::Data | Purpose::Watch => table.take(arrival),
                    Purpose::Join | Purpose::Spare => self.waiting.take(arrival),
                },
                Some(Event::Unproven(_)) => {}
                Some(Event::Said(_, Ok(Message::Connected))) => connected += 1,
                Some(Event::Said(process, Ok(Message::Interrupted))) if !self.is_newcomer(process) => {
                    return Err(interrupted(process));
                }
                Some(Event::Interrupted) => return Err(interrupted(0)),
                // It could not reach another one, which was lost.
                Some(Event::Said(process, Ok(Message::Failed(_)))) if self.membership.replaces => {
                    return Err(FabricError::vanished(process).into());
                }
                Some(Event::Said(process, Ok(Message::Failed(why)))) => {
                    let cause = format!("process {process}: {}", plain(&why));
                    return Err(FabricError::refused(cause).into());
                }
                Some(Event::Said(process, _)) => {
                    self.lost.insert(process);
                    return Err(FabricError::vanished(process).into());
                }
                None => {
                    let processes = table.missing();
                    return Err(FabricError::not_connected(&processes).into());
                }
            }
        }
        self.tell_all(&Message::Ready);
        Ok((known, table.lines()))
    }

    fn known(&self) -> io::Result<Known> {
        let others = self.members.iter().flatten().map(|(_, hello)| hello.address);
        let mut addresses: Vec<_> = std::iter::once(self.own.address).chain(others).collect();
        let here = here(&self.members);
        for address in &mut addresses {
            if address.ip().is_unspecified() {
                address.set_ip(here);
            }
        }
        let mut run = [0; 32];
        getrandom::fill(&mut run)?;
        let first = self.own.was_in.unwrap_or(run);
        let is_there = |number: &u32| self.members[*number as usize].is_some();
        let others = (1..self.membership.processes).filter(is_there);
        Ok(Known { addresses, numbers: std::iter::once(0).chain(others).collect(), run, first })
    }

    /// Tells all processes that have connected. If one has gone, its receiver notices it.
    fn tell_all(&self, message: &Message) {
        for (channel, _) in self.members.iter().flatten() {
            let _ = send(channel, message, self.deadline + GRACE);
        }
    }

    /// Tells those that are still on their way, for a short time. Else process 0 would look lost to them.
    fn tell_late(&mut self, message: &Message) {
        let end = Instant::now() + GRACE;
        self.waiting.acceptor.rest(MOMENT);
        let mut came = self.waiting.take_early();
        let is_late =
            |process: &u32| !self.lost.contains(process) && self.members[*process as usize].is_none();
        let mut late: BTreeSet<u32> = (1..self.membership.processes).filter(is_late).collect();
        loop {
            for arrival in came.drain(..) {
                // If it has gone, it need not know.
                let _ = send(&arrival.channel, message, end);
                late.remove(&arrival.process);
            }
            if late.is_empty() {
                return;
            }
            match self.waiting.acceptor.next(end) {
                Some(Event::Came(arrival)) => came.push(arrival),
                Some(_) => {}
                None => return,
            }
        }
    }

    fn too_late(&self) -> FabricError {
        let missing: Vec<u32> = self.missing().collect();
        let unproven = self.unproven.iter().filter(|process| missing.contains(process));
        let notes = unproven.map(|process| match &self.membership.secret {
            Some(_) => format!("; a process came that calls itself {process} and does not know the secret"),
            None => format!(
                "; {}, or it has a secret and process 0 has none: set PIPEWRIGHT_TOKEN everywhere, or \
                 nowhere",
                self.own.alike.other_build(&format!("process {process}"))
            ),
        });
        let left_over = self.left_over.iter().filter(|(process, _)| missing.contains(process));
        let left_over = left_over.map(|(process, cause)| {
            format!("; process {process} of a run that goes on came and was sent away: {cause}")
        });
        let (missing, notes) = (list(&missing), notes.chain(left_over).collect::<String>());
        let (of, address) = (self.membership.processes, &self.membership.address);
        let seconds = self.membership.deadline.as_secs_f64();
        FabricError::refused(format!(
            "process {missing} of {of} did not come to {address} within {seconds} s: start it, or give more \
             time (launch.deadline){notes}"
        ))
    }
}

/// This process was asked to end.
fn interrupted(process: u32) -> Error {
    RestartError::WaitEnded { process }.into()
}

/// The address at which other machines reach this one, if any process is on another machine.
fn here(members: &[Option<(Arc<Channel>, Hello)>]) -> IpAddr {
    let own = members.iter().flatten().filter_map(|(channel, _)| channel.here().ok());
    let mut own = own.map(|address| address.ip()).filter(|ip| !ip.is_loopback());
    own.next().unwrap_or(Ipv4Addr::LOCALHOST.into())
}
