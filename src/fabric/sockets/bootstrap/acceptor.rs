//! Receives the messages of other processes while they connect.

use std::io::{self, ErrorKind};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, unbounded};

use super::message::{Comer, Hello, Message, receive};
use crate::fabric::sockets::channel::Channel;
use crate::fabric::sockets::handshake::{Gate, Key, Purpose, Rebuff, Shown, Side, Strangers, Talk, secured};
use crate::interrupt::Interrupt;

/// How often to look for new connections, and for what they say, while processes connect.
const PAUSE: Duration = Duration::from_millis(1);

/// How often to look whether this process was asked to end, while nothing else can happen.
const LOOK: Duration = Duration::from_millis(20);

/// How long a process may take at least to say who it is.
const PATIENCE: Duration = Duration::from_secs(5);

/// How many new connections are taken in at a time.
const AT_A_TIME: usize = 64;

/// What happens while processes connect.
pub(super) enum Event {
    /// A process of the run is there, on a new connection.
    Came(Arrival),
    /// Something calls itself this process, and cannot prove that it belongs to the run.
    Unproven(u32),
    /// A message from a known process, or the end of its connection.
    Said(u32, io::Result<Message>),
    /// This process was asked to end.
    Interrupted,
}

/// A new connection of a process that belongs to the run.
pub(super) struct Arrival {
    pub(super) channel: Arc<Channel>,
    pub(super) process: u32,
    pub(super) purpose: Purpose,
    /// Whether that process encrypts its connections.
    pub(super) tls: bool,
    /// What it says, if it joins the run.
    pub(super) hello: Option<Hello>,
    /// What it says, if it is a spare.
    pub(super) spare: Option<Comer>,
}

/// Waits for new connections and for known processes, all at once.
pub(super) struct Acceptor {
    listener: TcpListener,
    gate: Gate,
    strangers: Strangers,
    tell: Sender<Event>,
    events: Receiver<Event>,
    pause: Duration,
    interrupt: Interrupt,
}

impl Acceptor {
    pub(super) fn new(listener: TcpListener, gate: Gate) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let (tell, events) = unbounded();
        Ok(Self {
            listener,
            gate,
            strangers: Strangers::default(),
            tell,
            events,
            pause: PAUSE,
            interrupt: Interrupt::default(),
        })
    }

    /// From now on also takes connections from other processes of this run.
    pub(super) fn open(&mut self, run: Key) {
        self.gate.run = Some(run);
    }

    /// From now on only takes in who joins the run or waits beside it, and looks less often.
    pub(super) fn rest(&mut self, pause: Duration) {
        (self.gate.run, self.pause) = (None, pause);
        self.interrupt = Interrupt::default();
    }

    /// From now on looks as often as while processes connect, until this interrupt.
    pub(super) fn wake(&mut self, interrupt: Interrupt) {
        (self.pause, self.interrupt) = (PAUSE, interrupt);
    }

    /// Forgets all connections so far.
    pub(super) fn begin_anew(&mut self) {
        self.gate.run = None;
        self.strangers = Strangers::default();
        (self.tell, self.events) = unbounded();
    }

    /// What this process proves itself by.
    pub(super) fn gate(&self) -> &Gate {
        &self.gate
    }

    /// From now on reports the next message of this process, until the deadline.
    pub(super) fn hear(&self, process: u32, from: &Arc<Channel>, deadline: Instant) -> io::Result<()> {
        let (from, tell) = (Arc::clone(from), self.tell.clone());
        let hear = move || {
            // If nobody waits any more, nobody needs the message.
            let _ = tell.send(Event::Said(process, receive(&from, deadline)));
        };
        thread::Builder::new().spawn(hear).map(|_| ())
    }

    /// The next message of a process that is reported, or `None` when the deadline passes. Nobody else is
    /// taken in meanwhile.
    pub(super) fn said(&self, deadline: Instant) -> Option<Event> {
        while Instant::now() < deadline {
            if self.interrupt.is_requested() {
                return Some(Event::Interrupted);
            }
            if let Ok(event) = self.events.recv_timeout(LOOK) {
                return Some(event);
            }
        }
        None
    }

    /// The next event, or `None` when the deadline passes.
    pub(super) fn next(&mut self, deadline: Instant) -> Option<Event> {
        while Instant::now() < deadline {
            if self.interrupt.is_requested() {
                return Some(Event::Interrupted);
            }
            if let Ok(event) = self.events.recv_timeout(self.pause) {
                return Some(event);
            }
            self.take_in();
            for shown in self.strangers.hear(&self.gate) {
                match shown {
                    Shown::Proven(stream, talk) => self.greet(stream, talk, deadline),
                    Shown::Unproven(process) => self.report(Event::Unproven(process)),
                }
            }
        }
        None
    }

    /// Takes in connections that have come.
    fn take_in(&mut self) {
        for _ in 0..AT_A_TIME {
            match self.listener.accept() {
                Ok((stream, _)) => self.strangers.admit(stream),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // The system may have no room for another one.
                Err(_) => return self.strangers.send_one_away(),
            }
        }
    }

    /// Hears what a process says that belongs to the run, on a thread of its own.
    fn greet(&self, stream: TcpStream, talk: Talk, deadline: Instant) {
        let deadline = deadline.max(Instant::now() + PATIENCE);
        let (gate, tell) = (self.gate.clone(), self.tell.clone());
        let greet = move || {
            // If nobody waits any more, nobody needs to know.
            let _ = match arrival(stream.into(), &talk, &gate, deadline) {
                Ok(arrival) => tell.send(Event::Came(arrival)),
                Err(Rebuff::Impostor) => tell.send(Event::Unproven(talk.process(Side::Connects))),
                Err(Rebuff::Interrupted) => {
                    let process = talk.process(Side::Connects);
                    tell.send(Event::Said(process, Ok(Message::Interrupted)))
                }
                // The connection has failed: perhaps the process comes again.
                Err(_) => return,
            };
        };
        // If the system gives no thread, the connection is closed.
        let _ = thread::Builder::new().spawn(greet);
    }

    fn report(&self, event: Event) {
        // The other end is in this struct.
        let _ = self.tell.send(event);
    }
}

/// A process that has proved that it belongs to the run, and what it says.
fn arrival(channel: Channel, talk: &Talk, gate: &Gate, deadline: Instant) -> Result<Arrival, Rebuff> {
    let (purpose, tls) = (talk.purpose(), talk.wants_tls(Side::Connects));
    let channel = secured(channel, talk, gate, Side::Listens, deadline)?;
    let speaks = tls == gate.tls && matches!(purpose, Purpose::Join | Purpose::Spare);
    let said = speaks.then(|| receive(&channel, deadline)).transpose()?;
    let (hello, spare) = match (purpose, said) {
        (_, None) => (None, None),
        (Purpose::Join, Some(Message::Hello(hello))) => (Some(hello), None),
        (Purpose::Spare, Some(Message::Spare(spare))) => (None, Some(spare)),
        // It was asked to end before it came.
        (Purpose::Join, Some(Message::Interrupted)) => return Err(Rebuff::Interrupted),
        _ => return Err(io::Error::from(ErrorKind::InvalidData).into()),
    };
    Ok(Arrival {
        channel: Arc::new(channel),
        process: talk.process(Side::Connects),
        purpose,
        tls,
        hello,
        spare,
    })
}
