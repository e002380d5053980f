//! Worlds whose processes are connected by lines that somebody else makes, instead of sockets. So a test can
//! run several processes in one program, let bytes come late, and let a process die at any moment.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use super::World;
use super::feed::Feed;
use super::processes::{Answer, Aside, Line, Lines, ReadsFrames, StartsReaders, frame_length};
use crate::error::{Loss, Result};
use crate::interrupt::Interrupt;

/// Carries what one process sends the others, and what they send it.
pub trait OwnLines: Send + Sync + 'static {
    /// Sends bytes to another process. They arrive there in order ([`FromProcess::take`]), unless its end, or
    /// this one's, comes first. It must not wait for the other process.
    ///
    /// # Errors
    /// When the line has ended.
    fn carry(&self, to: u32, bytes: &[u8]) -> io::Result<()>;

    /// Ends the line to another process, in both directions. What was sent before still arrives.
    fn close(&self, to: u32);

    /// From now on this process reads. `from[p]` takes in the bytes of process `p`.
    fn open(&self, from: Vec<Option<FromProcess>>);

    /// This process has taken all that has come, and waits for more. Returns when there may be something. It
    /// may return too early.
    fn await_bytes(&self);

    /// Joins the same run again, after these processes were lost.
    ///
    /// # Errors
    /// Whatever keeps this process from it.
    fn join_again(&self, lost: &[u32]) -> Result<World>;
}

impl World {
    /// Process `process` of `processes`, which these lines connect. `goes_on`: whether it is a run that goes
    /// on after processes were lost. Each process may have one rank.
    pub fn by_lines(process: u32, processes: u32, own: Arc<dyn OwnLines>, goes_on: bool) -> Self {
        let line = |to: u32| {
            let (own, answer) = (Arc::clone(&own), Answer::default());
            (to != process).then(|| Arc::new(OwnLine { own, to, answer }) as Arc<dyn Line>)
        };
        let waits: Arc<dyn Feed> = Arc::new(Waits(Arc::clone(&own)));
        let lines = Lines {
            lines: (0..processes).map(line).collect(),
            start: Box::new(Opens(Arc::clone(&own))),
            feed: Some(Arc::clone(&waits)),
            heard_by: Some(waits),
            local: (0..processes).collect(),
            aside: Arc::new(Aside::default()),
        };
        let again = move |lost: &[u32], _: &Interrupt| own.join_again(lost);
        Self::new(process, lines, Duration::MAX).with_return(Arc::new(again), goes_on)
    }
}

/// Takes in what another process sends.
pub struct FromProcess {
    /// `None`: the line has ended.
    reader: Option<Box<dyn ReadsFrames>>,
    /// The beginning of a frame.
    bytes: Vec<u8>,
}

impl FromProcess {
    /// Bytes have come.
    pub fn take(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        while let Some(reader) = &mut self.reader
            && let Some(length) = frame_length(&self.bytes)
            && length <= self.bytes.len() as u64
        {
            let frame: Vec<u8> = self.bytes.drain(..length as usize).collect();
            if !reader.frame(&mut &frame[..]) {
                self.reader = None;
            }
        }
    }

    /// Nothing more will come.
    pub fn end(&mut self) {
        if let Some(mut reader) = self.reader.take() {
            reader.frame(&mut &self.bytes[..]);
        }
    }
}

impl std::fmt::Debug for FromProcess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FromProcess").field("has_ended", &self.reader.is_none()).finish_non_exhaustive()
    }
}

/// The line to one process.
struct OwnLine {
    own: Arc<dyn OwnLines>,
    to: u32,
    answer: Answer,
}

impl Line for OwnLine {
    fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        self.own.carry(self.to, bytes).map(|()| bytes.len())
    }

    fn waits(&self) -> bool {
        false
    }

    fn limit(&self, _: Duration) -> io::Result<()> {
        Ok(())
    }

    fn close(&self) {
        self.own.close(self.to);
    }

    fn loss(&self) -> Loss {
        Loss::Closed
    }

    fn ask(&self) {}

    fn nudge(&self) {}

    fn answer(&self) -> &Answer {
        &self.answer
    }
}

/// No thread reads: the caller that hands bytes over does.
struct Opens(Arc<dyn OwnLines>);

impl StartsReaders for Opens {
    fn start(
        self: Box<Self>,
        readers: Vec<Option<Box<dyn ReadsFrames>>>,
        _: &mut Vec<JoinHandle<()>>,
    ) -> Result<()> {
        let from = |reader| FromProcess { reader: Some(reader), bytes: Vec::new() };
        self.0.open(readers.into_iter().map(|reader| reader.map(from)).collect());
        Ok(())
    }
}

/// Lets the lines know of a process that waits.
struct Waits(Arc<dyn OwnLines>);

impl Feed for Waits {
    fn feed(&self, _: &dyn Fn() -> bool) -> bool {
        self.0.await_bytes();
        true
    }
}
