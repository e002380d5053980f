//! Where a process waits for what the others say while they connect.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, unbounded};

use super::message::{Message, receive, send};

/// How often it is looked for who has come.
const PAUSE: Duration = Duration::from_millis(2);

/// How long whoever connects may take to say who it is.
const PATIENCE: Duration = Duration::from_secs(5);

/// How many connections may be open that have not said anything yet. Others wait to be taken.
const SILENT: usize = 64;

/// What happens while processes connect.
pub(super) enum Event {
    /// Somebody has connected and said this, after this challenge.
    Came(TcpStream, Message, u64),
    /// What a process says that has come before, or that its connection has ended.
    Said(u32, io::Result<Message>),
}

/// Waits for everybody at once: those who connect, and those who have.
pub(super) struct Desk {
    listener: TcpListener,
    tell: Sender<Event>,
    events: Receiver<Event>,
    silent: Arc<AtomicUsize>,
}

impl Desk {
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

    /// Tells from now on what this process says, as many messages, until the deadline.
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
                // Who waits no more needs nothing.
                if tell.send(Event::Said(process, said)).is_err() || is_end {
                    return;
                }
            }
        };
        thread::Builder::new().spawn(hear).map(|_| ())
    }

    /// What happens next; none when the deadline passes.
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

    /// Asks somebody who has connected, on a thread of its own. One that says nothing of ours, such as a
    /// scanner of ports, is let go.
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
                // Who comes when all are there is not needed.
                let _ = tell.send(Event::Came(stream, message, challenge));
            }
        };
        if thread::Builder::new().spawn(ask).is_err() {
            // It has been let go.
            self.silent.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
