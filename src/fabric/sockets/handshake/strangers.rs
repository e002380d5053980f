//! The side that listens: connections that have not proved yet that they belong to the run. They cost no
//! thread, and little memory. Each has little time, and there is a limit to their number.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use socket2::SockRef;

use super::credentials::Gate;
use super::messages::{MAGIC, NOT_TAKEN, Side, TAKEN, Talk};

/// How many there may be. When another one comes, the oldest must go. A process that belongs to the run needs
/// two messages each way, so it is seldom the oldest, and it comes again.
const MOST: usize = 64;

/// How long one of them may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a connection has shown.
pub(in crate::fabric::sockets) enum Shown {
    /// It belongs to the run.
    Proven(TcpStream, Talk),
    /// It calls itself this process, but its proof is wrong.
    Unproven(u32),
}

/// All of them, the oldest first.
#[derive(Default)]
pub(in crate::fabric::sockets) struct Strangers(VecDeque<Stranger>);

impl Strangers {
    /// A new connection.
    pub(in crate::fabric::sockets) fn admit(&mut self, stream: TcpStream) {
        if self.0.len() >= MOST {
            self.send_one_away();
        }
        // Without this, reading from it would wait.
        if stream.set_nonblocking(true).is_ok() {
            self.0.push_back(Stranger {
                stream,
                since: Instant::now(),
                came: [0; Talk::ASK],
                count: 0,
                talk: None,
            });
        }
    }

    /// Closes the oldest one. It is told so in a way by which a process of the run knows that it may come
    /// again: the connection is reset.
    pub(in crate::fabric::sockets) fn send_one_away(&mut self) {
        if let Some(oldest) = self.0.pop_front() {
            oldest.reset();
        }
    }

    /// Reads what has come, without waiting, and answers.
    pub(in crate::fabric::sockets) fn hear(&mut self, gate: &Gate) -> Vec<Shown> {
        let mut shown = Vec::new();
        for mut stranger in std::mem::take(&mut self.0) {
            match stranger.hear(gate) {
                Heard::Nothing if stranger.since.elapsed() < PATIENCE => self.0.push_back(stranger),
                Heard::Nothing => stranger.reset(),
                Heard::Nonsense => {}
                Heard::Proof(talk) => shown.push(Shown::Proven(stranger.stream, talk)),
                Heard::NoProof(process) => shown.push(Shown::Unproven(process)),
            }
        }
        shown
    }
}

/// What was heard of one of them.
enum Heard {
    /// Nothing that is whole.
    Nothing,
    /// What no process of the run says.
    Nonsense,
    Proof(Talk),
    NoProof(u32),
}

struct Stranger {
    stream: TcpStream,
    since: Instant,
    /// What has come of the next message, and its length.
    came: [u8; Talk::ASK],
    count: usize,
    /// The first two messages.
    talk: Option<Talk>,
}

impl Stranger {
    fn hear(&mut self, gate: &Gate) -> Heard {
        loop {
            let whole = self.talk.as_ref().map_or(Talk::ASK, |_| Talk::PROOF);
            if self.count == whole {
                let proof = self.came[..std::mem::take(&mut self.count)].to_vec();
                match self.talk.take() {
                    Some(talk) => return self.judge(gate, talk, &proof),
                    None => self.talk = self.answer(gate),
                }
                if self.talk.is_none() {
                    return Heard::Nonsense;
                }
                continue;
            }
            match self.stream.read(&mut self.came[self.count..whole]) {
                Ok(0) => return Heard::Nonsense,
                Ok(more) => self.count += more,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Heard::Nothing,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Heard::Nonsense,
            }
            let begin = self.count.min(MAGIC.len());
            if self.talk.is_none() && self.came[..begin] != MAGIC[..begin] {
                return Heard::Nonsense;
            }
        }
    }

    /// Answers the first message. `None` if it is not one that is expected here.
    fn answer(&mut self, gate: &Gate) -> Option<Talk> {
        let answer = Talk::answer(gate.process, gate.tls).ok()?;
        let talk = Talk::new(self.came, answer)?;
        gate.key(talk.purpose())?;
        self.say(&answer).then_some(talk)
    }

    /// Says whether the proof is right. If it is, this side proves the same.
    fn judge(&mut self, gate: &Gate, talk: Talk, proof: &[u8]) -> Heard {
        let process = talk.process(Side::Connects);
        match gate.key(talk.purpose()) {
            Some(key) if talk.is_proof(proof, key, Side::Connects) => {
                let own = talk.proof(key, Side::Listens);
                let is_told = self.say(&[&[TAKEN], &own[..]].concat());
                match is_told && self.stream.set_nonblocking(false).is_ok() {
                    true => Heard::Proof(talk),
                    false => Heard::Nonsense,
                }
            }
            _ => {
                // If it has gone already, nothing is lost.
                let _ = self.say(&[NOT_TAKEN]);
                Heard::NoProof(process)
            }
        }
    }

    /// Whether these few bytes could be sent at once. A new connection has room for them.
    fn say(&mut self, bytes: &[u8]) -> bool {
        matches!(self.stream.write(bytes), Ok(count) if count == bytes.len())
    }

    fn reset(self) {
        // If the system cannot, it closes the connection as usual.
        let _ = SockRef::from(&self.stream).set_linger(Some(Duration::ZERO));
    }
}
