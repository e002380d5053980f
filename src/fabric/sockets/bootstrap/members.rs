//! All processes but process 0: each connects to process 0, waits until all have, and connects with each.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::acceptor::{Acceptor, Event};
use super::alike::other_tls;
use super::message::{Hello, Message, send};
use super::peer::Table;
use super::reach::{First, reach};
use super::{GRACE, Known, LATE, Membership, Pair, address};
use crate::error::{Error, FabricError, Problem, ProcessLoss, RestartError, Result};
use crate::fabric::processes::plain;
use crate::fabric::sockets::channel::Channel;
use crate::fabric::sockets::handshake::{Gate, Purpose, Rebuff, Side};
use crate::interrupt::Interrupt;

/// For ever: an `Instant` cannot be far in the future.
pub(super) const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// The pause before all connect anew.
const PAUSE: Duration = Duration::from_millis(20);

/// The addresses of all processes, and the connections to the others. The `interrupt` asks this process to
/// end meanwhile.
pub(super) fn come(
    membership: &Membership,
    (gate, interrupt, first): (&Gate, &Interrupt, First),
    hello: impl Fn(SocketAddr) -> Hello,
    deadline: Instant,
) -> Result<(Known, Vec<Option<Pair>>)> {
    let mut deadline = deadline;
    loop {
        match come_once(membership, (gate.clone(), interrupt, first), &hello, &mut deadline) {
            Err(error) if membership.replaces && comes_again(&error) && Instant::now() < deadline => {
                thread::sleep(PAUSE);
            }
            come => return come,
        }
    }
}

/// Whether a process was lost while all were connecting. Then all connect anew.
fn comes_again(error: &Error) -> bool {
    matches!(error, Error::Fabric(error) if matches!(**error, FabricError::Lost(_)))
}

fn come_once(
    membership: &Membership,
    (gate, interrupt, zero): (Gate, &Interrupt, First),
    hello: impl Fn(SocketAddr) -> Hello,
    deadline: &mut Instant,
) -> Result<(Known, Vec<Option<Pair>>)> {
    // Where the run may go on without it, it ends as one that is lost: nobody else ends.
    let may_miss = membership.fewest < membership.processes && zero != First::Comes;
    let ends_alone = || may_miss && interrupt.is_by_sigterm();
    let reached = reach_first(membership, (&gate, Some(interrupt), zero), Purpose::Join, *deadline);
    let first = Arc::new(reached.inspect_err(|error| {
        if error.is_end_of_wait() && zero != First::Listens && !ends_alone() {
            leave(membership, &gate);
        }
    })?);
    come_to(membership, (gate, interrupt, &first), hello, deadline).inspect_err(|error| {
        if error.is_end_of_wait() {
            if !ends_alone() {
                // Process 0 tells all others, which need not wait any more. If it has gone, nobody waits.
                let _ = send(&first, &Message::Interrupted, Instant::now() + GRACE);
            }
            first.close();
        }
    })
}

/// The same, once process 0 is reached.
fn come_to(
    membership: &Membership,
    (gate, interrupt, first): (Gate, &Interrupt, &Arc<Channel>),
    hello: impl Fn(SocketAddr) -> Hello,
    deadline: &mut Instant,
) -> Result<(Known, Vec<Option<Pair>>)> {
    let cannot = |source: io::Error| FabricError::cannot_listen("a free port", source);
    // This process reaches process 0 from this address. So the others, which reach process 0 too, can use it.
    let own = first.here().map_err(cannot)?.ip();
    let own = match membership.secret.is_some() && address::has_own_name(&membership.address, own) {
        true => address::anywhere(own),
        false => own,
    };
    let listener = TcpListener::bind((own, 0)).map_err(cannot)?;
    let hello = hello(listener.local_addr().map_err(cannot)?);
    let key = gate.key.clone();
    let mut acceptor = Acceptor::new(listener, gate).map_err(cannot)?;
    acceptor.wake(interrupt.clone());
    let known = introduce(membership, (first, &acceptor), hello, *deadline)?;
    acceptor.open(key.of_run(&known.run));
    // All may have waited for some that do not come.
    *deadline = (*deadline).max(Instant::now() + LATE);
    let deadline = *deadline;
    acceptor.hear(0, first, deadline + GRACE).map_err(cannot)?;
    let at = first.there().map_err(cannot)?;
    let mut table = Table::new(membership.process, known.numbers.clone(), at);
    let connected = connect(membership, (&mut acceptor, interrupt), &mut table, &known, deadline);
    if let Err(error) = &connected
        && !error.is_end_of_wait()
    {
        // If process 0 has gone, it has told the others why.
        let _ = send(first, &Message::Failed(error.to_string()), deadline + GRACE);
    }
    connected?;
    let told = send(first, &Message::Connected, deadline + GRACE);
    told.map_err(|error| unheard(membership, error))?;
    wait_until_ready(membership, &mut acceptor, deadline + GRACE)?;
    Ok((known, table.lines()))
}

/// This process was asked to end before it had reached process 0. If that listens soon, it is told.
fn leave(membership: &Membership, gate: &Gate) {
    let end = Instant::now() + GRACE;
    if let Ok(first) = reach_first(membership, (gate, None, First::Comes), Purpose::Join, end) {
        // If it has gone, nobody waits.
        let _ = send(&first, &Message::Interrupted, end);
    }
}

/// Says hello to process 0, and waits until it has heard all and tells their addresses.
fn introduce(
    membership: &Membership,
    (first, acceptor): (&Arc<Channel>, &Acceptor),
    hello: Hello,
    deadline: Instant,
) -> Result<Known> {
    // Process 0 may have begun to wait later than this one.
    let deadline = deadline.max(Instant::now() + membership.deadline) + GRACE;
    let answer = |deadline| {
        acceptor.hear(0, first, deadline)?;
        match acceptor.said(deadline) {
            Some(Event::Said(_, said)) => said,
            Some(Event::Interrupted) => Ok(Message::Interrupted),
            Some(Event::Came(_) | Event::Unproven(_)) | None => Err(ErrorKind::TimedOut.into()),
        }
    };
    let told = send(first, &Message::Hello(hello), deadline);
    let said = match told.and_then(|()| answer(deadline)) {
        // The run goes on, and takes this process in after a step.
        Ok(Message::Known) => answer(Instant::now() + YEAR),
        said => said,
    };
    match said {
        Ok(Message::Interrupted) => Err(interrupted(membership)),
        Ok(Message::Welcome { addresses, numbers, run, first })
            if addresses.len() == numbers.len() && numbers.contains(&membership.process) =>
        {
            Ok(Known { addresses, numbers, run, first })
        }
        Ok(Message::Refused(why)) => Err(FabricError::refused(plain(&why)).into()),
        Ok(_) => Err(foreign(&membership.address).into()),
        Err(error) => Err(unheard(membership, error).into()),
    }
}

/// Connects to the processes with lower numbers, and waits for those with higher ones.
fn connect(
    membership: &Membership,
    (acceptor, interrupt): (&mut Acceptor, &Interrupt),
    table: &mut Table,
    known: &Known,
    deadline: Instant,
) -> Result<()> {
    table.reach_lower(known, (acceptor.gate(), interrupt), deadline)?;
    loop {
        let processes = table.missing();
        if processes.is_empty() {
            return Ok(());
        }
        match acceptor.next(deadline) {
            Some(Event::Came(arrival)) => table.take(arrival),
            Some(Event::Unproven(_)) => {}
            Some(Event::Said(_, said)) => ready(said)?,
            Some(Event::Interrupted) => return Err(interrupted(membership)),
            None => {
                return Err(FabricError::not_connected(&processes).into());
            }
        }
    }
}

/// Waits until process 0 says that all are connected.
fn wait_until_ready(membership: &Membership, acceptor: &mut Acceptor, deadline: Instant) -> Result<()> {
    loop {
        match acceptor.next(deadline) {
            Some(Event::Said(_, said)) => return ready(said),
            Some(Event::Interrupted) => return Err(interrupted(membership)),
            // All have connected already.
            Some(Event::Came(_) | Event::Unproven(_)) => {}
            None => return Err(FabricError::vanished(0).into()),
        }
    }
}

/// The last message of process 0: all are connected, or there is no run.
fn ready(said: io::Result<Message>) -> Result<()> {
    match said {
        Ok(Message::Ready) => Ok(()),
        Ok(Message::Refused(why)) => Err(FabricError::refused(plain(&why)).into()),
        Ok(_) | Err(_) => Err(FabricError::vanished(0).into()),
    }
}

/// This process was asked to end.
fn interrupted(membership: &Membership) -> Error {
    RestartError::WaitEnded { process: membership.process }.into()
}

fn foreign(address: &str) -> FabricError {
    FabricError::refused(format!(
        "what listens at {address} is no process 0 of this program: it answers in another protocol; give all \
         processes another MASTER_PORT or launch.address"
    ))
}

/// Why process 0 did not answer.
pub(super) fn unheard(membership: &Membership, error: io::Error) -> FabricError {
    let address = &membership.address;
    match error.kind() {
        ErrorKind::InvalidData => foreign(address),
        ErrorKind::WouldBlock | ErrorKind::TimedOut => FabricError::refused(format!(
            "what listens at {address} has said nothing for {} s: is it process 0 of this run?",
            membership.deadline.as_secs_f64()
        )),
        _ => FabricError::Lost(Problem::because(
            format!(
                "process 0 at {address} has ended the connection ({error}): its own output says why; or \
                 another program listens there"
            ),
            error,
        )),
    }
}

/// How long something may take to prove that it is process 0, if another one may be it.
const PROOF: Duration = Duration::from_secs(5);

/// Connects to process 0 once it listens, for this purpose.
pub(super) fn reach_first(
    membership: &Membership,
    (gate, interrupt, first): (&Gate, Option<&Interrupt>, First),
    purpose: Purpose,
    deadline: Instant,
) -> Result<Channel> {
    let own_only = membership.secret.is_none();
    if own_only && address::leads_away(&membership.address) {
        return Err(FabricError::needs_secret(&membership.address).into());
    }
    let mut attempt = 0;
    let connect = |time| {
        attempt += 1;
        address::connect(&membership.address, own_only, attempt - 1, time)
    };
    let has_ended =
        |error: &io::Error| first == First::Listens && error.kind() == ErrorKind::ConnectionRefused;
    let goes_on = |error: &io::Error| !has_ended(error);
    let another = first == First::Lost || address::are_several(membership);
    let time = (another.then_some(PROOF), deadline);
    let reached = reach((connect, goes_on), (gate, interrupt), (0, purpose), time);
    let (channel, talk) = reached.map_err(|rebuff| match rebuff {
        Rebuff::Unreached(error) if has_ended(&error) => {
            Error::ProcessGone { process: 0, loss: ProcessLoss::Unknown }
        }
        rebuff => unreached(membership, rebuff),
    })?;
    match talk.wants_tls(Side::Listens) == membership.tls {
        true => Ok(channel),
        false => Err(FabricError::refused(other_tls("this process", membership.tls)).into()),
    }
}

/// Why process 0 was not reached.
fn unreached(membership: &Membership, rebuff: Rebuff) -> Error {
    let address = &membership.address;
    let error = match rebuff {
        // Where the name leads may be known only now.
        Rebuff::Unreached(_) if membership.secret.is_none() && address::leads_away(address) => {
            FabricError::needs_secret(address)
        }
        Rebuff::Unreached(error) => FabricError::Refused(Problem::because(
            format!(
                "cannot reach process 0 at {address} within {} s ({error}): start process 0 there, or give \
                 more time (launch.deadline)",
                membership.deadline.as_secs_f64()
            ),
            error,
        )),
        Rebuff::Failed(error) => unheard(membership, error),
        Rebuff::NotTaken => not_let_in(address, membership.secret.is_some()),
        Rebuff::Impostor => FabricError::refused(format!(
            "what listens at {address} cannot prove that it is process 0 of this run: another run or a \
             stranger has that port; give all processes another MASTER_PORT or launch.address"
        )),
        Rebuff::Interrupted => {
            let process = membership.process;
            return RestartError::WaitEnded { process }.into();
        }
    };
    error.into()
}

/// Why a proof was not taken, as far as the process can know that made it.
fn not_let_in(address: &str, has_secret: bool) -> FabricError {
    let why = match has_secret {
        true => {
            "it has another secret, or none; give all processes the same one (PIPEWRIGHT_TOKEN or \
             launch.token_file)"
        }
        false => {
            "it runs another build of the program, or it has a secret and this process has none; start the \
             same file everywhere, and give all the same secret (PIPEWRIGHT_TOKEN or launch.token_file)"
        }
    };
    FabricError::refused(format!("process 0 at {address} does not let this process in: {why}"))
}
