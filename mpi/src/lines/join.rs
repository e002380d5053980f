//! A world whose processes are connected by MPI.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
use pipewright::Result;
use pipewright::error::{FabricError, Problem};
use pipewright::fabric::World;
use pipewright::fabric::line::{Aside, FromProcess, Line, Lines};

use super::alike::compare;
use super::library::Mpi;
use super::link::Link;
use super::receiver::{Receiver as Receives, Reception};
use super::watcher::Watcher;

/// A process's place in a run that an MPI launcher started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MpiMembership {
    /// Its number, from 0, as the launcher's environment says.
    pub process: u32,
    /// How many there are.
    pub processes: u32,
    /// How long to wait for the others when further connections are made. MPI itself waits as long as its
    /// launcher lets it.
    pub deadline: Duration,
    /// How long another process may be silent before it counts as gone. A stopped process is silent too.
    /// [`Membership::SILENCE`](pipewright::fabric::Membership::SILENCE) is the usual value.
    pub silence: Duration,
}

impl MpiMembership {
    /// Connects to the other processes by MPI, which a process can do once. `program` is what must be equal
    /// in all, line by line, such as the config. The program's file must be the same too.
    ///
    /// All processes leave together: the end of a run waits until all have left it, unless the run has
    /// failed.
    ///
    /// # Errors
    /// [`FabricError`] when MPI was started before, when it does not let several threads call it, when it
    /// gives this process another place than the environment, or when processes differ: the error says which
    /// one, and in what.
    pub fn join(&self, program: &str) -> Result<World> {
        let (tell, told) = bounded(1);
        let (give, given) = bounded(1);
        let (membership, program) = (self.clone(), program.to_owned());
        let reception = Arc::new(Reception::new());
        let aside = Arc::new(Aside::new(self.processes));
        let hears = Arc::clone(&aside);
        let feed = Some(Arc::clone(&reception) as _);
        // MPI must be started and ended on one thread.
        let thread = thread::Builder::new().name("mpi".to_owned());
        let thread = thread.spawn(move || run(&membership, &program, (&tell, &given), &reception, hears));
        let thread = thread.map_err(|source| {
            FabricError::Refused(Problem::because(
                format!("cannot start the thread that receives by MPI: {source}"),
                source,
            ))
        })?;
        let thread = Thread { give: Some(give), thread: Some(thread) };
        let start = Box::new(|from, threads: &mut Vec<_>| thread.start(from, threads));
        let (lines, local) = told.recv().expect("the thread first says how it began")?;
        let lines = Lines { lines, start, feed, local, aside };
        Ok(World::by_lines(self.process, lines, self.deadline))
    }
}

/// By process: what takes in its bytes.
type FromAll = Vec<Option<FromProcess>>;

/// The lines, and the processes on this one's machine.
type Joined = (Vec<Option<Arc<dyn Line>>>, Vec<u32>);

/// All that happens from the start of MPI to its end.
fn run(
    membership: &MpiMembership,
    program: &str,
    (tell, given): (&Sender<Result<Joined>>, &Receiver<FromAll>),
    reception: &Reception,
    aside: Arc<Aside>,
) {
    let (universe, mpi) = match Mpi::start() {
        Ok(started) => started,
        Err(error) => return drop(tell.send(Err(error))),
    };
    let place = [membership.process, membership.processes];
    if let Err(error) = compare(mpi, place, program) {
        // All processes have found the same, and end MPI.
        drop(universe);
        return drop(tell.send(Err(error)));
    }
    let others = (0..mpi.processes()).map(|process| {
        let link = || Arc::new(Link::new(mpi, process));
        (process != mpi.process()).then(link)
    });
    let links: Vec<Option<Arc<Link>>> = others.collect();
    let lines = links.iter().map(|link| Some(Arc::clone(link.as_ref()?) as _));
    // The other end waits for it.
    let _ = tell.send(Ok((lines.collect(), mpi.local())));
    let (stop, silence) = (AtomicBool::new(false), membership.silence);
    let watcher = Watcher { mpi, links: links.clone(), silence, aside };
    let in_order = thread::scope(|scope| {
        scope.spawn(|| watcher.run(&stop));
        // There are none if the run ends before it begins.
        let from = given.recv().unwrap_or_default();
        let in_order = reception.run(Receives::new(mpi, &links, from));
        stop.store(true, Ordering::Release);
        in_order
    });
    if in_order {
        drop(universe);
    } else {
        // The end of MPI waits for all processes. The end of this process without it ends the job.
        std::mem::forget(universe);
    }
}

/// The thread that has started MPI.
struct Thread {
    give: Option<Sender<FromAll>>,
    thread: Option<JoinHandle<()>>,
}

impl Thread {
    fn start(mut self, from: FromAll, threads: &mut Vec<JoinHandle<()>>) -> Result<()> {
        threads.extend(self.thread.take());
        if let Some(give) = self.give.take() {
            // It waits for them.
            let _ = give.send(from);
        }
        Ok(())
    }
}

/// A run that ends before it begins waits for the end of MPI.
impl Drop for Thread {
    fn drop(&mut self) {
        drop(self.give.take());
        if let Some(thread) = self.thread.take() {
            // A panic was printed.
            let _ = thread.join();
        }
    }
}
