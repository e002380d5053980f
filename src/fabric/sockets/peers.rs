//! What all processes of a run do together, in blocks from each to each.

use std::fmt::Arguments;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, never};

use super::calls::Calls;
use super::connection::{Connection, farewell};
use super::ears::Ears;
use super::head::Kind;
use super::part::{self, Failure, Order};
use super::reader::Heard;
use crate::error::{Error, FabricError, Result};
use crate::fabric::Call;

/// How often clocks are compared: the quickest answer tells most.
const PINGS: usize = 8;

/// The name of that call.
const CLOCKS: &str = "comparing clocks";

/// How long to wait for the other processes when one has failed. One of them may have failed first and be
/// about to say so; or it says nothing at all because it is stopped.
const GRACE: Duration = Duration::from_secs(1);

/// The other processes of a run. Every process makes the same calls in the same order; each call ends when
/// all have made it.
///
/// Dropping it leaves the run: whoever still waits for this process learns that it has ended.
pub struct Peers {
    process: u32,
    connections: Vec<Option<Arc<Connection>>>,
    ears: Mutex<Ears>,
    readers: Vec<JoinHandle<()>>,
    calls: Arc<Calls>,
    /// The number of the last call that was announced.
    announced: AtomicU64,
    /// The number of the last block that was shared.
    shared: AtomicU64,
}

impl Peers {
    /// A process without others.
    pub fn none() -> Self {
        Self::new(0, vec![None], never())
    }

    pub(super) fn new(
        process: u32,
        connections: Vec<Option<Arc<Connection>>>,
        heard: Receiver<(u32, Heard)>,
    ) -> Self {
        let processes = connections.len() as u32;
        Self {
            process,
            connections,
            ears: Mutex::new(Ears::new(process, processes, heard)),
            readers: Vec::new(),
            calls: Arc::new(Calls::new(process, processes)),
            announced: AtomicU64::new(0),
            shared: AtomicU64::new(0),
        }
    }

    /// Takes a thread that reads from a connection, to wait for its end.
    pub(super) fn add(&mut self, reader: JoinHandle<()>) {
        self.readers.push(reader);
    }

    pub(super) fn calls(&self) -> Arc<Calls> {
        Arc::clone(&self.calls)
    }

    /// This process's number, from 0.
    pub fn process(&self) -> u32 {
        self.process
    }

    /// The number of processes.
    pub fn processes(&self) -> u32 {
        self.connections.len() as u32
    }

    /// Announces the next call that all processes make, with its arguments, such as `evaluate(30
    /// micro-batches)`, before this process's ranks begin it. Gives the call's number, for
    /// [`super::super::Transport::begin`] on every rank.
    ///
    /// It does not wait. The n-th call of this process is compared with the n-th of every other as soon as
    /// both are known. If they differ, both processes fail with the same error: this call or the next one,
    /// [`Peers::share`], and every rank that waits in its transport.
    ///
    /// In a run of one process nothing is written down, so it allocates nothing.
    ///
    /// # Errors
    /// [`FabricError::CallsDiffer`] when another process has announced another call.
    pub fn announce(&self, call: Arguments<'_>) -> Result<Call> {
        let number = 1 + self.announced.fetch_add(1, Ordering::Relaxed);
        if self.processes() > 1 {
            let text = call.to_string();
            for connection in self.connections.iter().flatten() {
                // One that cannot be reached shows where it is heard.
                let _ = connection.tell(Kind::Call, number, text.as_bytes());
            }
            self.calls.ours(&text)?;
        }
        Ok(Call::first(number))
    }

    /// Refuses processes that are not alike. `parts` are what has to be equal: names, and values in words or
    /// as hashes, in an order that is the same in every process. `what` names the call.
    ///
    /// # Errors
    /// [`FabricError::NotAlike`] on every process, with the first part that differs; else as for
    /// [`Peers::share`].
    pub fn compare(&self, what: &str, parts: Result<Vec<(String, String)>>) -> Result<()> {
        let unreadable = |_| Error::Stopped(format!(": a process's part in {what} cannot be read"));
        let mine = parts.and_then(|parts| postcard::to_stdvec(&parts).map_err(unreadable));
        let blocks = self.share(what, mine)?;
        let parts = blocks.iter().map(|block| postcard::from_bytes(block));
        let all = parts
            .collect::<postcard::Result<Vec<Vec<(String, String)>>>>()
            .map_err(unreadable)?;
        for (process, parts) in (0..).zip(&all).skip(1) {
            if let Some(error) = difference(&all[0], process, parts) {
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// Gives every process's block to all, in process order; `what` names the call.
    ///
    /// # Errors
    /// On every process the first cause, when any brings an error; [`Error::Process`] when another has failed
    /// or left, [`Error::ProcessGone`] when one was lost, [`FabricError::CallsDiffer`] when one makes another
    /// call. A process that says nothing does not keep the others from a failure that they know of.
    pub fn share(&self, what: &str, mine: Result<Vec<u8>>) -> Result<Vec<Vec<u8>>> {
        if self.processes() == 1 {
            return mine.map(|block| vec![block]);
        }
        let number = self.next_share();
        let part = part::write(what, &mine);
        for connection in self.connections.iter().flatten() {
            // One that cannot be reached shows where it is heard.
            let _ = connection.tell(Kind::Part, number, &part);
        }
        let mut ears = self.ears();
        let mut answers = Answers::new(self.processes());
        answers.put(self.process, mine.map_err(Failure::own));
        loop {
            for process in 0..self.processes() {
                if answers.is_missing(process)
                    && let Some(part) = ears.part(process, number, what)
                {
                    answers.put(process, part);
                }
            }
            if answers.is_complete() || !ears.listen(answers.until) {
                return answers.result();
            }
        }
    }

    /// What to add to seconds since `origin` on this process's clock to have those since `origin` on process
    /// 0's.
    ///
    /// # Errors
    /// As for [`Peers::share`].
    pub fn offset(&self, origin: Instant) -> Result<f64> {
        let number = self.next_share();
        let now = || origin.elapsed().as_secs_f64();
        if self.process != 0 {
            for _ in 0..PINGS {
                self.ask(0, number)?;
                self.answer(0, number, now());
            }
            return self.ask(0, number);
        }
        for process in 1..self.processes() {
            let mut best = [f64::INFINITY, 0.0];
            for _ in 0..PINGS {
                let asked = now();
                self.answer(process, number, 0.0);
                let there = self.ask(process, number)?;
                let answered = now();
                if answered - asked < best[0] {
                    best = [answered - asked, (asked + answered) / 2.0 - there];
                }
            }
            self.answer(process, number, best[1]);
        }
        Ok(0.0)
    }

    /// Leaves for a failure; the others are told why.
    pub fn fail(&self, cause: &Error) {
        farewell(&self.connections, Some(cause));
    }

    /// Tells another process a number.
    fn answer(&self, process: u32, of: u64, number: f64) {
        if let Some(connection) = &self.connections[process as usize] {
            let part = part::write(CLOCKS, &Ok(number.to_le_bytes().to_vec()));
            // One that cannot be reached shows where it is heard.
            let _ = connection.tell(Kind::Part, of, &part);
        }
    }

    /// Another process's number.
    fn ask(&self, process: u32, of: u64) -> Result<f64> {
        let block = self.ears().wait_for(process, of, CLOCKS)?;
        let bytes = block.as_chunks().0.first();
        Ok(bytes.map_or(0.0, |bytes| f64::from_le_bytes(*bytes)))
    }

    fn next_share(&self) -> u64 {
        1 + self.shared.fetch_add(1, Ordering::Relaxed)
    }

    fn ears(&self) -> MutexGuard<'_, Ears> {
        self.ears.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What came of a call in each process.
struct Answers {
    /// By process; none where nothing was heard yet.
    blocks: Vec<Option<Vec<u8>>>,
    missing: Vec<bool>,
    /// The likeliest first cause; of several the one of the lowest process, so that all processes tell the
    /// same.
    first: Option<(Order, u32, Error)>,
    /// How long to wait for those that are missing.
    until: Option<Instant>,
}

impl Answers {
    fn new(processes: u32) -> Self {
        Self {
            blocks: vec![None; processes as usize],
            missing: vec![true; processes as usize],
            first: None,
            until: None,
        }
    }

    fn is_missing(&self, process: u32) -> bool {
        self.missing[process as usize]
    }

    fn put(&mut self, process: u32, part: std::result::Result<Vec<u8>, Failure>) {
        self.missing[process as usize] = false;
        match part {
            Ok(block) => self.blocks[process as usize] = Some(block),
            Err(failure) => {
                self.until.get_or_insert_with(|| Instant::now() + GRACE);
                let key = (failure.order, process);
                let is_likelier = |(order, of, _): &(Order, u32, Error)| key < (*order, *of);
                if self.first.as_ref().is_none_or(is_likelier) {
                    self.first = Some((failure.order, process, failure.error));
                }
            }
        }
    }

    fn is_complete(&self) -> bool {
        !self.missing.contains(&true)
    }

    fn result(self) -> Result<Vec<Vec<u8>>> {
        match self.first {
            Some((_, _, error)) => Err(error),
            None => Ok(self.blocks.into_iter().flatten().collect()),
        }
    }
}

/// The first part in which a process differs from process 0.
fn difference(first: &[(String, String)], process: u32, other: &[(String, String)]) -> Option<FabricError> {
    let pairs = first.iter().map(Some).chain(std::iter::repeat(None));
    let pairs = pairs.zip(other.iter().map(Some).chain(std::iter::repeat(None)));
    let mut pairs = pairs.take(first.len().max(other.len()));
    let (ours, theirs) = pairs.find(|(ours, theirs)| ours != theirs)?;
    let (part, _) = ours.or(theirs)?;
    let value = |side: Option<&(String, String)>| {
        let found = side.filter(|(name, _)| name == part);
        found.map_or_else(|| "nothing".to_owned(), |(_, value)| value.clone())
    };
    Some(FabricError::NotAlike {
        process,
        part: part.clone(),
        has: value(theirs),
        first: value(ours),
    })
}

impl Drop for Peers {
    fn drop(&mut self) {
        farewell(&self.connections, None);
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
            .field("processes", &self.connections.len())
            .finish_non_exhaustive()
    }
}
