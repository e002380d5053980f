//! Process 0's door while its run goes on: spares wait there, and those that take the place of a process
//! before process 0 knows that it was lost.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::acceptor::{Acceptor, Arrival, Event};
use super::alike::{other_run, other_tls};
use super::message::{Message, send};
use crate::fabric::processes::Alike;
use crate::fabric::sockets::channel::Channel;
use crate::fabric::sockets::handshake::Purpose;
use crate::fabric::sockets::line::probe;

/// The time between two looks whether somebody has come.
const LOOK: Duration = Duration::from_millis(20);

/// How long a spare may take to read a message.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long a spare may take until it comes in the place of a process without which the run goes on.
const PREPARES: Duration = Duration::from_secs(600);

/// How long process 0 may be busy before it knows of a loss that its machine has noticed.
const LOSS: Duration = Duration::from_secs(60);

/// The processes that are told of differences.
const SPARE: &str = "this spare";

/// The most spares.
const MOST: usize = 64;

/// The processes that wait to be let in, and the socket at which they come.
pub(super) struct Waiting {
    /// Where it is.
    pub(super) at: SocketAddr,
    pub(super) acceptor: Acceptor,
    /// What a spare must have too.
    alike: Alike,
    processes: u32,
    /// How long the machine of a spare may be silent.
    silence: Duration,
    /// The number that the run had when it began.
    pub(super) run: Option<[u8; 32]>,
    spares: Vec<Spare>,
    /// Those that have come too early, and when.
    early: Vec<(Arrival, Instant)>,
    /// The processes without which the run goes on.
    pub(super) absent: BTreeSet<u32>,
    /// When a spare was asked to take the place of one of them.
    pub(super) asked: BTreeMap<u32, Instant>,
}

/// A process that waits to take a place.
struct Spare {
    channel: Arc<Channel>,
    /// Whether process 0 may listen on its machine.
    can_lead: bool,
    /// Whether it takes process 0's place when that is lost. One spare at most does.
    is_heir: bool,
}

/// A thread that listens at process 0's address. When this is dropped, the run has ended, and spares are
/// told.
pub(in crate::fabric::sockets) struct Door {
    closes: Arc<AtomicBool>,
    /// Whether another process shall take this one's place: then spares are not told that the run has ended.
    left: Arc<AtomicBool>,
    newcomers: Arc<AtomicBool>,
    thread: Option<JoinHandle<Waiting>>,
}

/// Tells one that joins that the run goes on, and takes it in later. Returns whether it is still there.
pub(super) fn tell_known(arrival: &Arrival) -> bool {
    send(&arrival.channel, &Message::Known, Instant::now() + PATIENCE).is_ok()
}

impl Waiting {
    /// `silence`: how long the machine of a spare may be silent.
    pub(super) fn at(
        at: SocketAddr,
        acceptor: Acceptor,
        alike: Alike,
        (processes, silence): (u32, Duration),
    ) -> Self {
        Self {
            at,
            acceptor,
            alike,
            processes,
            silence,
            run: None,
            spares: Vec::new(),
            early: Vec::new(),
            absent: BTreeSet::new(),
            asked: BTreeMap::new(),
        }
    }

    /// Takes in somebody who has come while the processes were not connecting.
    pub(super) fn take(&mut self, arrival: Arrival) {
        match arrival.purpose {
            Purpose::Spare => self.take_spare(&arrival),
            Purpose::Join => {
                self.forget_gone();
                let was_in = arrival.hello.as_ref().and_then(|hello| hello.was_in);
                if was_in.is_some() && was_in != self.run {
                    let refused = Message::Refused(other_run(&format!("process {}", arrival.process)));
                    // If it has gone, it need not know.
                    let _ = send(&arrival.channel, &refused, Instant::now() + PATIENCE);
                    return;
                }
                if tell_known(&arrival) {
                    self.keep(arrival);
                }
            }
            // Its connection is closed.
            Purpose::Data | Purpose::Watch => {}
        }
    }

    /// Whether somebody waits who can take the place of a process without which the run goes on.
    fn has_newcomers(&mut self) -> bool {
        self.forget_gone();
        self.early.iter().any(|(early, _)| self.absent.contains(&early.process))
    }

    /// Asks spares to take the places of processes without which the run goes on. They prepare, and come.
    fn call_spares(&mut self) {
        let now = Instant::now();
        for process in self.absent.clone() {
            let is_asked = self.asked.get(&process).is_some_and(|at| now < *at + PREPARES);
            if is_asked || self.early.iter().any(|(early, _)| early.process == process) {
                continue;
            }
            if self.call(process) {
                self.asked.insert(process, now);
            }
        }
    }

    /// Asks a spare to take the place of this process. Returns whether there is one.
    pub(super) fn call(&mut self, process: u32) -> bool {
        let take = Message::Take { process, processes: self.processes };
        while let Some(spare) = self.take_last() {
            if !spare.has_gone() && send(&spare, &take, Instant::now() + PATIENCE).is_ok() {
                return true;
            }
        }
        false
    }

    /// Lets one wait that has come too early.
    pub(super) fn keep(&mut self, arrival: Arrival) {
        self.early.push((arrival, Instant::now()));
    }

    /// Those that have come too early and still wait.
    pub(super) fn take_early(&mut self) -> Vec<Arrival> {
        self.forget_gone();
        self.early.drain(..).map(|(early, _)| early).collect()
    }

    /// A process that has given up must not stand in the way of the next one of its number.
    fn forget_gone(&mut self) {
        self.early.retain(|(early, _)| !early.channel.has_gone());
    }

    /// Refuses those that wait for the place of a process that is still there: by now its loss would be
    /// known.
    fn refuse_doubles(&mut self, now: Instant) {
        let patience = self.silence + LOSS;
        let waits = |(early, came): &mut (Arrival, Instant)| {
            // One that was in the run has noticed a loss before process 0 has.
            let is_new = early.hello.as_ref().is_none_or(|hello| hello.was_in.is_none());
            is_new && !self.absent.contains(&early.process) && now > *came + patience
        };
        for (double, _) in self.early.extract_if(.., waits) {
            let cause = format!(
                "process {process} of this run is there, and this second one has waited {} s for its place: \
                 give it another RANK, or start a spare (--spare), which waits until any process is lost",
                patience.as_secs(),
                process = double.process,
            );
            // If it has gone, it need not know.
            let _ = send(&double.channel, &Message::Refused(cause), Instant::now() + PATIENCE);
        }
    }

    /// A spare that could not take any place is told so now, and not when a process is lost.
    fn take_spare(&mut self, arrival: &Arrival) {
        if self.spares.len() == MOST {
            self.spares.retain(|spare| !spare.channel.has_gone());
        }
        let cause = match &arrival.spare {
            None => Some(other_tls(SPARE, arrival.tls)),
            Some(_) if self.spares.len() == MOST => Some(format!("{MOST} spares wait already")),
            Some(spare) => self.alike.difference(SPARE, &spare.alike),
        };
        let answer = cause.map_or(Message::Known, Message::Refused);
        let told = send(&arrival.channel, &answer, Instant::now() + PATIENCE);
        let told = told.and_then(|()| probe(&arrival.channel, self.silence));
        if let (Ok(_), Message::Known) = (told, answer) {
            let can_lead = arrival.spare.as_ref().is_some_and(|spare| spare.can_lead);
            self.spares.push(Spare { channel: Arc::clone(&arrival.channel), can_lead, is_heir: false });
            self.name_heir();
        }
    }

    /// If no heir is there, tells a spare that it is the heir now.
    fn name_heir(&mut self) {
        self.spares.retain(|spare| !spare.is_heir || !spare.channel.has_gone());
        if self.spares.iter().any(|spare| spare.is_heir) {
            return;
        }
        let heir = Message::Heir { processes: self.processes };
        if let Some(next) = self.spares.iter_mut().find(|spare| spare.can_lead) {
            // If it has gone, that is noticed the next time.
            let _ = send(&next.channel, &heir, Instant::now() + PATIENCE);
            next.is_heir = true;
        }
    }

    /// A spare that shall take a place. The heir is the last of them.
    fn take_last(&mut self) -> Option<Arc<Channel>> {
        let place =
            self.spares.iter().rposition(|spare| !spare.is_heir).or(self.spares.len().checked_sub(1))?;
        Some(self.spares.remove(place).channel)
    }

    /// Tells the spares that the run has ended.
    pub(super) fn end(&mut self) {
        for spare in self.spares.drain(..) {
            // If it has gone, it need not know.
            let _ = send(&spare.channel, &Message::Over, Instant::now() + PATIENCE);
        }
        for (early, _) in self.early.drain(..) {
            let over = "the run has ended before it took this process in".to_owned();
            let _ = send(&early.channel, &Message::Refused(over), Instant::now() + PATIENCE);
        }
    }
}

impl Door {
    /// # Errors
    /// When the system gives no thread.
    pub(super) fn open(mut waiting: Waiting) -> std::io::Result<Self> {
        waiting.acceptor.rest(LOOK);
        let closes = Arc::<AtomicBool>::default();
        let newcomers = Arc::<AtomicBool>::default();
        let (told, tells) = (Arc::clone(&closes), Arc::clone(&newcomers));
        let wait = move || {
            while !told.load(Ordering::Relaxed) {
                if let Some(Event::Came(arrival)) = waiting.acceptor.next(Instant::now() + LOOK) {
                    waiting.take(arrival);
                }
                waiting.name_heir();
                waiting.call_spares();
                waiting.refuse_doubles(Instant::now());
                tells.store(waiting.has_newcomers(), Ordering::Relaxed);
            }
            waiting
        };
        let thread = thread::Builder::new().name("door".to_owned()).spawn(wait)?;
        Ok(Self { closes, left: Arc::default(), newcomers, thread: Some(thread) })
    }

    /// Is set when another process shall take this one's place.
    pub(in crate::fabric::sockets) fn left(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.left)
    }

    /// Whether somebody waits who can take the place of a process without which the run goes on.
    pub(in crate::fabric::sockets) fn newcomers(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.newcomers)
    }

    /// The processes that wait there. Nothing is told to them.
    pub(super) fn close(&mut self) -> Option<Waiting> {
        self.closes.store(true, Ordering::Relaxed);
        self.thread.take()?.join().ok()
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        if let Some(mut waiting) = self.close()
            && !self.left.load(Ordering::Relaxed)
        {
            waiting.end();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use super::{LOSS, Waiting};
    use crate::fabric::processes::Alike;
    use crate::fabric::sockets::bootstrap::acceptor::{Acceptor, Arrival};
    use crate::fabric::sockets::bootstrap::message::{Message, receive};
    use crate::fabric::sockets::channel::Channel;
    use crate::fabric::sockets::handshake::{Gate, Key, Purpose};

    const SILENCE: Duration = Duration::from_secs(9);

    /// A process that comes with this number, and what process 0 sees of it.
    fn comes(process: u32) -> (Channel, Arrival) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let outside = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
        let (stream, _) = listener.accept().expect("it has come");
        let channel = Arc::new(stream.into());
        let purpose = Purpose::Join;
        (outside.into(), Arrival { channel, process, purpose, tls: false, hello: None, spare: None })
    }

    /// A run of three processes.
    fn door() -> Waiting {
        let gate = Gate { process: 0, tls: false, key: Key::new(None), run: None };
        let door = TcpListener::bind("127.0.0.1:0").expect("a port");
        let at = door.local_addr().expect("bound");
        let acceptor = Acceptor::new(door, gate).expect("it listens");
        Waiting::at(at, acceptor, Alike::here("the same"), (3, SILENCE))
    }

    #[test]
    fn a_second_process_of_a_number_that_is_there_is_told() {
        let mut waiting = door();
        waiting.absent.insert(2);
        let [(double, one), (_missed, another)] = [comes(1), comes(2)];
        waiting.take(one);
        waiting.take(another);
        let came = Instant::now();
        let said = || receive(&double, came + SILENCE);
        assert!(matches!(said(), Ok(Message::Known)));
        waiting.refuse_doubles(came);
        assert_eq!(waiting.early.len(), 2, "a loss may be noticed later");
        waiting.refuse_doubles(came + SILENCE + LOSS + Duration::from_secs(1));
        match said() {
            Ok(Message::Refused(why)) => assert!(why.starts_with("process 1 of this run is there"), "{why}"),
            said => panic!("{said:?}"),
        }
        let left: Vec<_> = waiting.take_early().iter().map(|early| early.process).collect();
        assert_eq!(left, [2]);
    }

    #[test]
    fn one_that_has_given_up_is_in_nobodys_way() {
        let mut waiting = door();
        let [(first, one), (_second, another)] = [comes(1), comes(1)];
        waiting.take(one);
        drop(first);
        waiting.take(another);
        assert_eq!(waiting.take_early().len(), 1);
    }
}
