//! Calls of all processes together. Each process sends a block to each.

use std::collections::BTreeMap;
use std::fmt::Arguments;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use crossbeam_channel::never;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::alike::first_difference;
use super::answers::{Answers, GRACE};
use super::calls::Calls;
use super::connection::{Connection, farewell};
use super::head::{Kind, Limits};
use super::kept::Kept;
use super::others::Others;
use super::part::{self, Failure};
use super::patience::{Ending, Patience};
use super::received::Received;
use super::snapshot_sender::Giving;
use super::status_queries::Aside;
use crate::error::{Error, FabricError, Result};
use crate::fabric::Call;
use crate::interrupt::Interrupt;

/// How often clocks are compared. The quickest answer is the most exact.
const PINGS: usize = 8;

/// The name of the call that compares clocks.
const CLOCKS: &str = "comparing clocks";

/// The other processes of a run. Every process makes the same calls in the same order. A call ends when all
/// processes have made it.
///
/// Dropping it leaves the run. Processes that still wait for this one are told that it has ended.
pub struct Peers {
    process: u32,
    pub(super) connections: Vec<Option<Arc<Connection>>>,
    pub(super) received: Mutex<Received>,
    pub(super) readers: Vec<JoinHandle<()>>,
    calls: Arc<Calls>,
    pub(super) limits: Arc<Limits>,
    /// The number of the last call that was announced.
    announced: AtomicU64,
    /// The number of the last block that was shared.
    shared: AtomicU64,
    interrupt: Interrupt,
    patience: Mutex<Patience>,
    others: Others,
    /// What this process keeps for others.
    pub(super) kept: Arc<Kept>,
    /// By process: what gives it something to keep. Made when it is first needed.
    pub(super) giving: Mutex<BTreeMap<u32, Giving>>,
}

impl Peers {
    /// A process without others.
    pub fn none() -> Self {
        let others = Others::new(0, vec![None], Arc::new(Aside::new(1)), None);
        let received = Received::new(0, 1, never());
        Self::new(0, vec![None], received, others, Arc::default())
    }

    pub(super) fn new(
        process: u32,
        connections: Vec<Option<Arc<Connection>>>,
        received: Received,
        others: Others,
        kept: Arc<Kept>,
    ) -> Self {
        let processes = connections.len() as u32;
        Self {
            process,
            connections,
            received: Mutex::new(received),
            readers: Vec::new(),
            calls: Arc::new(Calls::new(process, processes)),
            limits: Arc::default(),
            announced: AtomicU64::new(0),
            shared: AtomicU64::new(0),
            interrupt: Interrupt::default(),
            patience: Mutex::default(),
            others,
            kept,
            giving: Mutex::default(),
        }
    }

    /// The threads that read from the connections. They are joined at the end.
    pub(super) fn threads(&mut self) -> &mut Vec<JoinHandle<()>> {
        &mut self.readers
    }

    pub(super) fn calls(&self) -> Arc<Calls> {
        Arc::clone(&self.calls)
    }

    /// From now on, wires that are tensors may have `wire` bytes, and blocks `block` bytes. This raises the
    /// limits, and never lowers them. Before the first call there are no limits. A process that sends more
    /// loses its connection. It returns when all processes have made this call.
    ///
    /// # Errors
    /// As for [`Peers::share`].
    pub fn allow(&self, wire: u64, block: u64) -> Result<()> {
        self.limits.allow(wire, block);
        self.share("making room", Ok(Vec::new())).map(drop)
    }

    /// This process's number, from 0.
    pub fn process(&self) -> u32 {
        self.process
    }

    /// The number of processes.
    pub fn processes(&self) -> u32 {
        self.connections.len() as u32
    }

    /// From now on this interrupt may end a wait for other processes.
    pub fn heed(&mut self, interrupt: Interrupt) {
        self.interrupt = interrupt;
    }

    /// Returns `Ok` to keep waiting for other processes. Call it every tenth of a second. `progress` is a
    /// number that changes whenever a rank of this process makes progress. It is `None` while one of them
    /// works and does not wait for others.
    ///
    /// # Errors
    /// The reason to end: nothing moves any more, or this process was asked to end and cannot wait any
    /// longer.
    pub(crate) fn keep_waiting(&self, progress: Option<u64>) -> std::result::Result<(), Ending> {
        if let Some(stalled) = self.others.take_stalled() {
            return Err(Ending::Stalled(stalled));
        }
        let mut patience = self.patience.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(patience.look(&self.interrupt, &self.others, progress)?)
    }

    /// The other processes, for a thread that watches.
    pub(crate) fn others(&self) -> Others {
        self.others.clone()
    }

    /// Announces the next call, before this process's ranks begin it. `call` is its name with its arguments,
    /// such as `evaluate(30 micro-batches)`. Returns the call, which every rank needs for
    /// [`super::super::Transport::begin`].
    ///
    /// It does not wait. The n-th call of this process is compared with the n-th call of every other process
    /// as soon as both are known. If they differ, both processes fail with the same error: in this call or
    /// the next one, in [`Peers::share`], and in every rank that waits in its transport.
    ///
    /// In a run of one process it allocates nothing.
    ///
    /// # Errors
    /// [`FabricError::Failed`] when another process has announced a different call.
    pub fn announce(&self, call: Arguments<'_>) -> Result<Call> {
        let number = 1 + self.announced.fetch_add(1, Ordering::Relaxed);
        if self.processes() > 1 {
            let text = call.to_string();
            for connection in self.connections.iter().flatten() {
                // If a process cannot be reached, the receiving thread notices it.
                let _ = connection.tell(Kind::Call, number, text.as_bytes());
            }
            self.calls.ours(&text)?;
        }
        Ok(Call::first(number))
    }

    /// Refuses processes that differ. `parts` are names and values of what must be equal, as text or as
    /// hashes. Their order must be the same in every process. `what` names the call.
    ///
    /// # Errors
    /// [`FabricError::Refused`] on every process, with the first part that differs. Otherwise as for
    /// [`Peers::share`].
    pub fn compare(&self, what: &str, parts: Result<Vec<(String, String)>>) -> Result<()> {
        let all = self.share_values(what, parts)?;
        for (process, parts) in (0..).zip(&all).skip(1) {
            if let Some(error) = first_difference(&all[0], process, parts) {
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// Gives every process's block to all, in process order. `what` names the call.
    ///
    /// # Errors
    /// If any process brings an error: the first cause, on every process. [`Error::Process`] when another
    /// process has failed or left, [`Error::ProcessGone`] when one was lost, and [`FabricError::Failed`]
    /// when one makes a different call. Known failures are returned even if another process is silent.
    pub fn share(&self, what: &str, mine: Result<Vec<u8>>) -> Result<Vec<Vec<u8>>> {
        if self.processes() == 1 {
            return mine.map(|block| vec![block]);
        }
        let number = self.next_share();
        self.tell_part(number, what, &mine);
        let mut received = self.received();
        let mut answers = Answers::new(self.processes());
        answers.put(self.process, mine.map_err(Failure::own));
        loop {
            for process in 0..self.processes() {
                if answers.is_missing(process)
                    && let Some(part) = received.part(process, number, what)
                {
                    answers.put(process, part);
                }
            }
            // A process may have done its part and ended since. One that is silent must not hide that.
            let failed = received.first_failure();
            if let Some((process, failure)) = failed.filter(|(_, failure)| answers.counts(failure)) {
                answers.fail(process, failure);
            }
            if answers.is_complete() || answers.until().is_some_and(|until| Instant::now() >= until) {
                return answers.result();
            }
            let missing = (0..self.processes()).filter(|process| answers.is_missing(*process));
            self.listen(&mut received, answers.until(), missing.collect())?;
        }
    }

    /// Gives every process's value to all, in process order: see [`Peers::share`].
    ///
    /// # Errors
    /// As for [`Peers::share`], and [`FabricError::Failed`].
    pub(crate) fn share_values<T>(&self, what: &str, mine: Result<T>) -> Result<Vec<T>>
    where
        T: Serialize + DeserializeOwned,
    {
        let mine = mine.map(|value| postcard::to_stdvec(&value).expect("memory takes what is written"));
        let read = |(process, block): (u32, Vec<u8>)| {
            postcard::from_bytes(&block).map_err(|error| {
                FabricError::unreadable_part(format_args!("process {process}"), what, error).into()
            })
        };
        (0..).zip(self.share(what, mine)?).map(read).collect()
    }

    /// Tells all what came of this process's part. A failure is told also when one of them does not read.
    fn tell_part(&self, number: u64, what: &str, mine: &Result<Vec<u8>>) {
        let part = part::write(what, mine);
        let until = Instant::now() + GRACE;
        for connection in self.connections.iter().flatten() {
            // If a process cannot be reached, the receiving thread notices it.
            let _ = match mine {
                Ok(_) => connection.tell(Kind::Part, number, &part),
                Err(_) => connection.tell_before(until, Kind::Part, number, &part),
            };
        }
    }

    /// Waits a moment for a word of any process; those that are `missing` are waited for.
    pub(super) fn listen(
        &self,
        received: &mut Received,
        until: Option<Instant>,
        missing: Vec<u32>,
    ) -> Result<()> {
        if !received.listen(until) {
            self.keep_waiting(Some(0)).map_err(|ending| ending.error(Vec::new(), missing))?;
        }
        Ok(())
    }

    /// The difference between this process's clock and process 0's, in seconds. Added to the seconds since
    /// `origin` on this process, it gives those since `origin` on process 0.
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

    /// Leaves because of a failure. The others are told the cause.
    pub fn fail(&self, cause: &Error) {
        farewell(&self.connections, Some(cause));
    }

    /// Sends a number to another process.
    fn answer(&self, process: u32, of: u64, number: f64) {
        if let Some(connection) = &self.connections[process as usize] {
            let part = part::write(CLOCKS, &Ok(number.to_le_bytes().to_vec()));
            // If the process cannot be reached, the receiving thread notices it.
            let _ = connection.tell(Kind::Part, of, &part);
        }
    }

    /// Receives a number from another process.
    fn ask(&self, process: u32, of: u64) -> Result<f64> {
        let mut received = self.received();
        let block = loop {
            if let Some(part) = received.part(process, of, CLOCKS) {
                break part.map_err(|failure| failure.error)?;
            }
            // The one that is asked may itself wait for another, which has ended.
            if let Some((_, failure)) = received.first_failure() {
                return Err(failure.error);
            }
            self.listen(&mut received, None, vec![process])?;
        };
        let bytes = block.as_chunks().0.first();
        Ok(bytes.map_or(0.0, |bytes| f64::from_le_bytes(*bytes)))
    }

    fn next_share(&self) -> u64 {
        1 + self.shared.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn received(&self) -> MutexGuard<'_, Received> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        farewell(&self.connections, None);
        self.end();
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
