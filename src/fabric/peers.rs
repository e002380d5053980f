//! What all processes of a run do together, in blocks from each to each.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use crossbeam_channel::Receiver;

use super::link::{Kind, Link};
use super::reader::Word;
use super::world::farewell;
use crate::error::{Error, Result};

/// How often clocks are compared: the quickest answer tells most.
const PINGS: usize = 8;

/// What is being done meanwhile.
const CLOCKS: &str = "comparing clocks";

/// The other processes of a run. Every process makes the same calls in the same order; each call ends when all have made it.
///
/// Dropping it leaves the run: whoever still waits for this process learns that it has ended.
pub struct Peers {
    process: u32,
    links: Vec<Option<Arc<Link>>>,
    words: Vec<Receiver<Word>>,
    readers: Vec<JoinHandle<()>>,
}

/// What a process says of its part in what all do.
const DONE: u8 = 0;
const FAILED: u8 = 1;
/// It could not go on because another had failed.
const ECHO: u8 = 2;

/// A failure, and how likely it is the first cause: lower is likelier.
type Failure = (u8, Error);

/// Says why.
const CAUSE: u8 = 0;
/// A process was lost.
const LOST: u8 = 1;
/// A process has left.
const LEFT: u8 = 2;
/// Follows from another.
const FOLLOWS: u8 = 3;

impl Peers {
    /// A process without others.
    pub fn none() -> Self {
        Self::new(0, vec![None], Vec::new(), Vec::new())
    }

    pub(super) fn new(
        process: u32,
        links: Vec<Option<Arc<Link>>>,
        words: Vec<Receiver<Word>>,
        readers: Vec<JoinHandle<()>>,
    ) -> Self {
        Self {
            process,
            links,
            words,
            readers,
        }
    }

    /// This process's number, from 0.
    pub fn process(&self) -> u32 {
        self.process
    }

    /// The number of processes.
    pub fn processes(&self) -> u32 {
        self.links.len() as u32
    }

    /// Gives every process's block to all, in process order; `what` names the call.
    ///
    /// # Errors
    /// On every process the first cause, when any brings an error; [`Error::Process`] when another has failed or left,
    /// [`Error::ProcessGone`] when one was lost.
    pub fn share(&self, what: &str, mine: Result<Vec<u8>>) -> Result<Vec<Vec<u8>>> {
        if self.links.len() == 1 {
            return mine.map(|block| vec![block]);
        }
        for link in self.links.iter().flatten() {
            tell(link, what, &mine);
        }
        let order = |error: &Error| if error.is_echo() { FOLLOWS } else { CAUSE };
        let mut mine = Some(mine.map_err(|error| (order(&error), error)));
        let (mut blocks, mut first): (Vec<_>, Option<Failure>) = (Vec::new(), None);
        for process in 0..self.processes() {
            let own = mine.take_if(|_| process == self.process);
            match own.unwrap_or_else(|| self.hear(process, what)) {
                Ok(block) => blocks.push(block),
                Err(failure) if first.as_ref().is_none_or(|first| failure.0 < first.0) => {
                    first = Some(failure)
                }
                Err(_) => {}
            }
        }
        first.map_or(Ok(blocks), |(_, error)| Err(error))
    }

    /// What to add to seconds since `origin` on this process's clock to have those since `origin` on process 0's.
    ///
    /// # Errors
    /// As for [`Peers::share`].
    pub fn offset(&self, origin: Instant) -> Result<f64> {
        let now = || origin.elapsed().as_secs_f64();
        if self.process != 0 {
            for _ in 0..PINGS {
                self.ask(0)?;
                self.answer(0, now());
            }
            return self.ask(0);
        }
        for process in 1..self.processes() {
            let mut best = [f64::INFINITY, 0.0];
            for _ in 0..PINGS {
                let asked = now();
                self.answer(process, 0.0);
                let there = self.ask(process)?;
                let answered = now();
                if answered - asked < best[0] {
                    best = [answered - asked, (asked + answered) / 2.0 - there];
                }
            }
            self.answer(process, best[1]);
        }
        Ok(0.0)
    }

    /// Leaves for a failure; the others are told why.
    pub fn fail(&self, cause: &Error) {
        farewell(&self.links, Some(cause));
    }

    /// Tells another process a number.
    fn answer(&self, process: u32, number: f64) {
        if let Some(link) = &self.links[process as usize] {
            tell(link, CLOCKS, &Ok(number.to_le_bytes().to_vec()));
        }
    }

    /// Another process's number.
    fn ask(&self, process: u32) -> Result<f64> {
        let block = self.hear(process, CLOCKS).map_err(|(_, error)| error)?;
        Ok(block
            .as_chunks()
            .0
            .first()
            .map_or(0.0, |bytes| f64::from_le_bytes(*bytes)))
    }

    /// What another process says of its part.
    fn hear(&self, process: u32, what: &str) -> std::result::Result<Vec<u8>, Failure> {
        let failed = |cause: String| Error::Process { process, cause };
        let block = match self.words[process as usize].recv() {
            Ok(Word::Block(block)) => block,
            Ok(Word::Farewell(cause)) if cause.is_empty() => {
                return Err((LEFT, failed("it has ended".to_owned())));
            }
            Ok(Word::Farewell(cause)) => return Err((CAUSE, failed(cause))),
            Err(_) => return Err((LOST, Error::ProcessGone(process))),
        };
        let end = block.iter().position(|&byte| byte == b'\n').unwrap_or(0);
        let (said, rest) = (
            String::from_utf8_lossy(&block[..end]),
            block.get(end + 1..).unwrap_or_default(),
        );
        let text = || String::from_utf8_lossy(rest.get(1..).unwrap_or_default()).into_owned();
        match rest.first() {
            Some(&FAILED) => Err((CAUSE, failed(text()))),
            Some(&ECHO) => Err((FOLLOWS, failed(text()))),
            Some(&DONE) if said == what => Ok(rest[1..].to_vec()),
            _ => Err((
                CAUSE,
                Error::Invalid(format!(
                    "process {process} is at `{said}`, process {} at `{what}`: all have to make the same calls",
                    self.process
                )),
            )),
        }
    }
}

/// Tells a process what came of this one's part in what all do. One that cannot be reached shows where it is heard.
fn tell(link: &Link, what: &str, mine: &Result<Vec<u8>>) {
    let mut block = what.as_bytes().to_vec();
    block.push(b'\n');
    match mine {
        Ok(bytes) => {
            block.push(DONE);
            block.extend_from_slice(bytes);
        }
        Err(error) => {
            block.push(if error.is_echo() { ECHO } else { FAILED });
            block.extend_from_slice(error.to_string().as_bytes());
        }
    }
    let _ = link.word(Kind::Word, &block);
}

impl Drop for Peers {
    fn drop(&mut self) {
        farewell(&self.links, None);
        for reader in self.readers.drain(..) {
            // One that panicked has shown as an end of its process.
            let _ = reader.join();
        }
    }
}

impl std::fmt::Debug for Peers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Peers")
            .field("process", &self.process)
            .field("processes", &self.links.len())
            .finish_non_exhaustive()
    }
}
