//! Receives the messages of other processes while they connect.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, unbounded};

use super::message::{Message, receive, send};

/// How often to look for new connections.
const PAUSE: Duration = Duration::from_millis(2);

/// How long a new connection may take to say who it is.
const PATIENCE: Duration = Duration::from_secs(5);

/// How many connections may be open that have not said anything yet. Further ones must wait.
const SILENT: usize = 64;

/// What happens while processes connect.
pub(super) enum Event {
    /// A new connection, its first message, and the challenge that it was sent.
    Came(TcpStream, Message, u64),
    /// A message from a known process, or the end of its connection.
    Said(u32, io::Result<Message>),
}

/// Waits for new connections and for known processes, all at once.
pub(super) struct Acceptor {
    listener: TcpListener,
    tell: Sender<Event>,
    events: Receiver<Event>,
    silent: Arc<AtomicUsize>,
}

impl Acceptor {
    pub(super) fn new(listener: TcpListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let (tell, events) = unbounded();
        Ok(Self {
            listener,
            tell,
            events,
            silent: Arc::default(),
        })
    }

    /// From now on reports up to `messages` messages of this process, until the deadline.
    pub(super) fn hear(
        &self,
        process: u32,
        from: &TcpStream,
        messages: usize,
        deadline: Instant,
    ) -> io::Result<()> {
        let (from, tell) = (from.try_clone()?, self.tell.clone());
        let hear = move || {
            for _ in 0..messages {
                let said = receive(&from, deadline);
                let is_end = said.is_err();
                // If nobody waits any more, nobody needs the message.
                if tell.send(Event::Said(process, said)).is_err() || is_end {
                    return;
                }
            }
        };
        thread::Builder::new().spawn(hear).map(|_| ())
    }

    /// The next event, or `None` when the deadline passes.
    pub(super) fn next(&self, deadline: Instant) -> Option<Event> {
        while Instant::now() < deadline {
            if self.silent.load(Ordering::Relaxed) < SILENT
                && let Ok((stream, _)) = self.listener.accept()
            {
                self.greet(stream, deadline);
            }
            match self.events.recv_timeout(PAUSE) {
                Ok(event) => return Some(event),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
        }
        None
    }

    /// Asks a new connection who it is, on a thread of its own. A connection that says something else, for
    /// example a port scanner's, is closed.
    fn greet(&self, stream: TcpStream, deadline: Instant) {
        let (tell, silent) = (self.tell.clone(), Arc::clone(&self.silent));
        silent.fetch_add(1, Ordering::Relaxed);
        let ask = move || {
            let challenge = RandomState::new().hash_one(Instant::now());
            let said = stream
                .set_nonblocking(false)
                .and_then(|()| send(&stream, &Message::Challenge(challenge)))
                .and_then(|()| receive(&stream, deadline.min(Instant::now() + PATIENCE)));
            silent.fetch_sub(1, Ordering::Relaxed);
            if let Ok(message) = said {
                // Connections after all processes have come are not needed.
                let _ = tell.send(Event::Came(stream, message, challenge));
            }
        };
        if thread::Builder::new().spawn(ask).is_err() {
            // The connection is closed.
            self.silent.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
