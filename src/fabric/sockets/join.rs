//! A world whose processes are connected by sockets.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::bootstrap::{self, Back, Door, GRACE, LATE, Membership, Pair};
use super::line::{Incoming, Sockets};
use super::near::shortest;
use crate::error::{FabricError, Result};
use crate::fabric::World;
use crate::fabric::processes::{Aside, FromProcess, Gone, Lines, Size, inlet};
use crate::interrupt::{Interrupt, before_ranks};

/// A longer deadline is cut to this: an `Instant` cannot be far in the future.
const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

impl World {
    /// Finds the other processes and connects to each of them by sockets. `program` is what must be equal in
    /// all, line by line, such as the config. The program's file must be the same too. Every process proves
    /// to every other that it knows the secret, on each connection.
    ///
    /// # Errors
    /// [`FabricError`](crate::error::FabricError) when the address cannot be used or reached, when a process
    /// does not connect in time (the error names it), when another program listens there, or when processes
    /// differ: the error says which one, and in what.
    pub fn join(membership: &Membership, program: &str) -> Result<Self> {
        Self::join_heeding(membership, program, &Interrupt::default())
    }

    /// The same. The interrupt ends the wait for the others, in all processes.
    ///
    /// # Errors
    /// As for [`World::join`]. [`RestartError::WaitEnded`](crate::error::RestartError::WaitEnded) after the
    /// interrupt.
    pub fn join_heeding(membership: &Membership, program: &str, interrupt: &Interrupt) -> Result<Self> {
        join(membership, program, None, interrupt)
    }

    /// Waits as a spare beside the run of this membership, in which [`Membership::replaces`] is set. What
    /// it will join with is `program`: see [`World::join`]. It calls `known` when process 0 knows this spare.
    /// Returns the number of a process that was lost, and how many processes there are: the caller then joins
    /// with that number. One of the spares becomes process 0: the first one on whose machine that may listen.
    /// `None` when the run has ended. `process` and `processes` of the membership do not count.
    ///
    /// # Errors
    /// As for [`World::join`]: a spare that differs from the run is refused as soon as process 0 knows it.
    /// Also when process 0 was lost, and no other one comes that takes its place.
    pub fn stand_by(
        membership: &Membership,
        program: &str,
        known: impl FnOnce(),
    ) -> Result<Option<[u32; 2]>> {
        let membership =
            &Membership { process: u32::MAX, deadline: membership.deadline.min(YEAR), ..membership.clone() };
        let deadline = Instant::now() + membership.deadline;
        let does = format!("waiting as a spare of the run at {}", membership.address);
        before_ranks(does, || bootstrap::stand_by(membership, program, known, deadline))
    }
}

/// `back`: if this process joins its run again.
fn join(
    membership: &Membership,
    program: &str,
    back: Option<Back<'_>>,
    interrupt: &Interrupt,
) -> Result<World> {
    let membership = &Membership { deadline: membership.deadline.min(YEAR), ..membership.clone() };
    let deadline = Instant::now() + membership.deadline;
    let does = does(membership, back.is_some());
    let joined = before_ranks(does, || bootstrap::join(membership, program, back, interrupt, deadline))?;
    let deadline = deadline.max(Instant::now() + LATE);
    let place =
        |number: u32| joined.numbers.iter().position(|other| *other == number).unwrap_or_default() as u32;
    let (own, processes) = (place(membership.process), joined.numbers.len() as u32);
    let (mut sockets, aside) = (Vec::new(), Arc::new(Aside::new(processes)));
    for (process, pair) in (0..).zip(joined.pairs) {
        let connect = |Pair { data, watch }| {
            let is_near = joined.local.contains(&process);
            let offers = own < process;
            let (data, shared) = shortest(data, is_near, offers, deadline + GRACE)?;
            let aside = Arc::clone(&aside);
            Sockets::new(process, data, shared, watch, membership.silence, aside).map(Arc::new)
        };
        let line = pair.map(connect);
        sockets.push(line.transpose().map_err(cannot_set_up(process))?);
    }
    let lines = Lines {
        lines: sockets.iter().map(|line| Some(Arc::clone(line.as_ref()?) as _)).collect(),
        start: Box::new(|from, threads| start(sockets, from, threads)),
        feed: None,
        local: joined.local,
        aside,
    };
    let world = World::by_lines(own, lines, membership.deadline);
    if !membership.replaces {
        return Ok(world);
    }
    let (membership, program, run) = (membership.clone(), program.to_owned(), joined.first);
    let world = world.of(Size {
        whole: membership.processes,
        fewest: membership.fewest,
        newcomers: joined.door.as_ref().map(Door::newcomers).unwrap_or_default(),
        left: joined.door.as_ref().map(Door::left).unwrap_or_default(),
        numbers: joined.numbers.clone(),
    });
    let (door, numbers) = (Mutex::new(joined.door), joined.numbers);
    let absent = (0..membership.processes).filter(|number| !numbers.contains(number));
    let absent = Mutex::new(absent.collect::<Vec<u32>>());
    let again = move |gone: Gone<'_>, interrupt: &Interrupt| {
        let mut absent = absent.lock().unwrap_or_else(PoisonError::into_inner);
        let numbered = gone.processes.iter().filter_map(|process| numbers.get(*process as usize)).copied();
        let mut lost = Vec::new();
        // Also if this has to be tried again, nobody waits for one that has left.
        if gone.have_left { &mut *absent } else { &mut lost }.extend(numbered);
        let back = Back {
            run,
            lost: &lost,
            absent: absent.clone(),
            door: door.lock().unwrap_or_else(PoisonError::into_inner).take(),
        };
        join(&membership, &program, Some(back), interrupt)
    };
    Ok(world.with_return(again, joined.goes_on))
}

/// What a process does that joins.
fn does(membership: &Membership, again: bool) -> String {
    let Membership { process, processes, address, .. } = membership;
    let joining = if again { "joining again" } else { "joining" };
    format!("{joining} the run at {address} as process {process}, until all {processes} are there")
}

/// Starts two threads for each other process: one reads frames, one watches the second connection.
fn start(
    sockets: Vec<Option<Arc<Sockets>>>,
    from: Vec<Option<FromProcess>>,
    threads: &mut Vec<JoinHandle<()>>,
) -> Result<()> {
    for (process, (from, sockets)) in (0..).zip(from.into_iter().zip(sockets)) {
        let (Some(mut from), Some(sockets)) = (from, sockets) else {
            continue;
        };
        let mut stream = inlet(Incoming(Arc::clone(&sockets)));
        threads.push(thread("from", process, move || while from.read(&mut stream) {})?);
        threads.push(thread("watch", process, move || sockets.watch())?);
    }
    Ok(())
}

/// Starts a thread for the connection to a process.
fn thread(does: &str, process: u32, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    let thread = thread::Builder::new().name(format!("{does} process {process}"));
    let started = thread.spawn(run);
    Ok(started.map_err(|source| FabricError::no_thread(process, source))?)
}

fn cannot_set_up(process: u32) -> impl Fn(io::Error) -> FabricError {
    move |error| FabricError::cannot_set_up(process, error)
}
