//! The calls of MPI. Several threads make them.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crossbeam_channel::Sender;
use mpi::Threading;
use mpi::environment::Universe;
use mpi::point_to_point::Message;
use mpi::request::{LocalScope, Request, StaticScope, scope};
use mpi::topology::SimpleCommunicator;
use mpi::traits::*;

use crate::error::{FabricError, MpiError, Result};
use crate::fabric::pause::Pause;

/// The most bytes of one message: MPI counts them in an `int`.
pub(super) const MOST: usize = 1 << 30;

/// After a failure of the run, how long one message may wait for the other process.
pub(super) const STUCK: Duration = Duration::from_secs(5);

/// What a message is: MPI's tag.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// Bytes of frames. A message without bytes is the end of the line.
    Frames = 1,
    /// One byte: a question whether a process runs, or the answer.
    Watch = 2,
}

/// All processes of the run, connected by MPI.
pub(super) struct Mpi {
    /// A copy of the world, so that no message is taken for one of another library.
    all: SimpleCommunicator,
    posted: Mutex<Vec<Posted>>,
}

/// Messages that are on their way, and the memory that they are sent from.
struct Posted {
    requests: Vec<Request<'static, [u8], StaticScope>>,
    memory: Vec<u8>,
    /// For memory that is free again.
    spare: Sender<Vec<u8>>,
}

// SAFETY: communicators and requests are handles, which MPI lets every thread use: see `Mpi::start`.
#[allow(unsafe_code, reason = "the crate does not say it")]
unsafe impl Send for Mpi {}
// SAFETY: as above.
#[allow(unsafe_code, reason = "the crate does not say it")]
unsafe impl Sync for Mpi {}

impl Mpi {
    /// Starts MPI, which a process can do once. It ends when the universe is dropped, on this same thread,
    /// and when all processes do it.
    ///
    /// # Errors
    /// When it was started before, or when it does not let several threads call it.
    pub(super) fn start() -> Result<(Universe, &'static Self)> {
        let started = mpi::initialize_with_threading(Threading::Multiple);
        let (universe, threading) = started.ok_or(FabricError::from(MpiError::Twice))?;
        if threading != Threading::Multiple {
            return Err(FabricError::from(MpiError::NoThreads).into());
        }
        let all = universe.world().duplicate();
        // MPI cannot start again, so this is the only one.
        Ok((
            universe,
            Box::leak(Box::new(Self {
                all,
                posted: Mutex::default(),
            })),
        ))
    }

    /// This process's number.
    pub(super) fn process(&self) -> u32 {
        self.all.rank() as u32
    }

    /// The number of processes.
    pub(super) fn processes(&self) -> u32 {
        self.all.size() as u32
    }

    /// The processes on this one's machine, with this one, in order. All processes call it.
    pub(super) fn local(&self) -> Vec<u32> {
        let here = self.all.split_shared(self.all.rank());
        let mut local = vec![0_u32; here.size() as usize];
        here.all_gather_into(&self.process(), &mut local[..]);
        local
    }

    /// The bytes of every process, in order. All processes call it.
    pub(super) fn gather(&self, mine: &[u8]) -> Vec<Vec<u8>> {
        let mut lengths = vec![0_u64; self.processes() as usize];
        self.all.all_gather_into(&(mine.len() as u64), &mut lengths[..]);
        let longest = lengths.iter().copied().max().unwrap_or(0).max(1) as usize;
        let mut padded = mine.to_vec();
        padded.resize(longest, 0);
        let mut all = vec![0_u8; longest * lengths.len()];
        self.all.all_gather_into(&padded[..], &mut all[..]);
        let parts = all.chunks(longest).zip(lengths);
        parts
            .map(|(part, length)| part[..length as usize].to_vec())
            .collect()
    }

    /// Sends the first of these bytes, straight from their memory, and returns how many. A wait for the other
    /// process that is `over` ends the job, because MPI would still use the memory.
    pub(super) fn send(&self, to: u32, kind: Kind, bytes: &[u8], over: impl Fn(&Pause) -> bool) -> usize {
        let bytes = &bytes[..bytes.len().min(MOST)];
        scope(|scope| {
            let to = self.all.process_at_rank(to as i32);
            let request = to.immediate_send_with_tag(scope, bytes, kind as i32);
            self.finish(request, to.rank(), over);
        });
        bytes.len()
    }

    /// Sends these parts of the memory, one message for each, without waiting. When all have gone, `spare` is
    /// given the memory: see [`Mpi::has_sent_all`].
    pub(super) fn post<const N: usize>(
        &'static self,
        to: u32,
        kind: Kind,
        memory: Vec<u8>,
        parts: [std::ops::Range<usize>; N],
        spare: &Sender<Vec<u8>>,
    ) {
        let process = self.all.process_at_rank(to as i32);
        let requests = parts.map(|part| {
            let bytes = &memory[part];
            // SAFETY: the memory stays with the request in `self`, which is never freed, until the message
            // has gone. Until then nobody writes to it.
            #[allow(unsafe_code, reason = "MPI reads the memory after this call")]
            let bytes: &'static [u8] = unsafe { std::slice::from_raw_parts(bytes.as_ptr(), bytes.len()) };
            process.immediate_send_with_tag(StaticScope, bytes, kind as i32)
        });
        let mut posted = self.posted();
        reclaim(&mut posted);
        posted.push(Posted {
            requests: requests.into(),
            memory,
            spare: spare.clone(),
        });
    }

    /// Whether all that was posted has gone.
    pub(super) fn has_sent_all(&self) -> bool {
        let mut posted = self.posted();
        reclaim(&mut posted);
        posted.is_empty()
    }

    fn posted(&self) -> MutexGuard<'_, Vec<Posted>> {
        self.posted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The process whose message of this kind is the next one, if any has come.
    pub(super) fn sender(&self, kind: Kind) -> Option<u32> {
        let status = self.all.any_process().immediate_probe_with_tag(kind as i32)?;
        Some(status.source_rank() as u32)
    }

    /// The next message of a process, if it has come.
    pub(super) fn next(&self, from: u32, kind: Kind) -> Option<Arrived<'_>> {
        let process = self.all.process_at_rank(from as i32);
        let (message, status) = process.immediate_matched_probe_with_tag(kind as i32)?;
        Some(Arrived {
            mpi: self,
            from,
            message,
            length: status.count(u8::equivalent_datatype()) as usize,
        })
    }

    fn finish<'a, D: ?Sized>(
        &self,
        mut request: Request<'a, D, &LocalScope<'a>>,
        with: i32,
        over: impl Fn(&Pause) -> bool,
    ) {
        let pause = Pause::begin();
        while let Err(unfinished) = request.test() {
            request = unfinished;
            if over(&pause) {
                self.end_the_job(with);
            }
            pause.rest(thread::sleep);
        }
    }

    /// Ends all processes at once.
    fn end_the_job(&self, because_of: i32) -> ! {
        eprintln!(
            "process {}: process {because_of} has not taken or sent its part of a message for {} s after the \
             run had failed: ending the job (MPI_Abort)",
            self.process(),
            STUCK.as_secs()
        );
        self.all.abort(1)
    }
}

/// Gives back the memory of what has gone.
fn reclaim(posted: &mut Vec<Posted>) {
    posted.retain_mut(|message| {
        let requests = std::mem::take(&mut message.requests).into_iter();
        message.requests = requests.filter_map(|request| request.test().err()).collect();
        if message.requests.is_empty() {
            // If nobody needs it any more, it is freed.
            let _ = message.spare.try_send(std::mem::take(&mut message.memory));
        }
        !message.requests.is_empty()
    });
}

/// A message that has come, and that nobody else can take.
pub(super) struct Arrived<'a> {
    mpi: &'a Mpi,
    from: u32,
    message: Message,
    length: usize,
}

impl Arrived<'_> {
    /// The number of its bytes.
    pub(super) fn length(&self) -> usize {
        self.length
    }

    /// Receives it, straight into this memory, which has its length. For `over` see [`Mpi::send`].
    pub(super) fn take(self, into: &mut [u8], over: impl Fn(&Pause) -> bool) {
        scope(|scope| {
            let request = self.message.immediate_matched_receive_into(scope, into);
            self.mpi.finish(request, self.from as i32, over);
        });
    }
}
