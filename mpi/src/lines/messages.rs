//! Messages of MPI that are on their way, and their memory.

use std::mem;

use mpi::point_to_point::Message;
use mpi::request::{Request, StaticScope};
use mpi::topology::Process;
use mpi::traits::*;
use pipewright::fabric::line::Numbers;

/// What a message is: MPI's tag.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// Bytes of frames. A message without bytes is the end of the line.
    Frames = 1,
    /// A word that is said aside.
    Watch = 2,
}

/// What a message is sent from.
pub(super) enum Memory {
    /// Bytes that were copied.
    Copy(Vec<u8>),
    /// Those of a wire, or a block.
    Numbers(Numbers),
}

impl Memory {
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::Copy(bytes) => bytes,
            Self::Numbers(numbers) => numbers.bytes(),
        }
    }
}

/// MPI's own part of a message. If it is dropped too early, MPI goes on with the memory.
struct Part(Option<Request<'static, [u8], StaticScope>>);

// SAFETY: requests are handles, which MPI lets every thread use: see `Mpi::start`.
#[allow(unsafe_code, reason = "the crate does not say it")]
unsafe impl Send for Part {}

impl Part {
    fn is_done(&mut self) -> bool {
        self.0 = self.0.take().and_then(|request| request.test().err());
        self.0.is_none()
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        mem::forget(self.0.take());
    }
}

/// A message to another process.
pub(super) struct Posted {
    part: Part,
    /// Is there until the message has gone.
    memory: Option<Memory>,
}

impl Posted {
    /// Begins to send.
    pub(super) fn new(to: &Process<'_>, kind: Kind, memory: Memory) -> Self {
        let bytes = memory.bytes();
        // SAFETY: these bytes are on the heap. They stay with the request until the message has gone, and
        // until then nobody writes to them. If the message is dropped before, they are never freed.
        #[allow(unsafe_code, reason = "MPI reads the memory after this call")]
        let bytes: &'static [u8] = unsafe { std::slice::from_raw_parts(bytes.as_ptr(), bytes.len()) };
        Self {
            part: Part(Some(to.immediate_send_with_tag(StaticScope, bytes, kind as i32))),
            memory: Some(memory),
        }
    }

    pub(super) fn size(&self) -> usize {
        self.memory.as_ref().map_or(0, |memory| memory.bytes().len())
    }

    /// The memory, once the message has gone.
    pub(super) fn gone(&mut self) -> Option<Memory> {
        self.memory.take_if(|_| self.part.is_done())
    }
}

impl Drop for Posted {
    fn drop(&mut self) {
        mem::forget(self.memory.take());
    }
}

/// A message that has come, and that nobody else can take.
pub(super) struct Arrived {
    pub(super) message: Message,
    pub(super) length: usize,
}

impl Arrived {
    /// The number of its bytes.
    pub(super) fn length(&self) -> usize {
        self.length
    }

    /// Receives a message of a byte or of none, which waits for nothing.
    pub(super) fn take(self, into: &mut [u8]) {
        self.message.matched_receive_into(into);
    }

    /// Begins to receive it straight into this memory, which has its length.
    ///
    /// # Safety
    /// The memory must stay where it is, and nobody may use it, until the message is there.
    #[allow(unsafe_code, reason = "MPI writes to the memory after this call")]
    pub(super) unsafe fn start(self, into: &mut [u8]) -> Receiving {
        // SAFETY: the caller sees to it.
        let into: &'static mut [u8] =
            unsafe { std::slice::from_raw_parts_mut(into.as_mut_ptr(), into.len()) };
        Receiving(Part(Some(self.message.immediate_matched_receive_into(StaticScope, into))))
    }
}

/// A message that is being received.
pub(super) struct Receiving(Part);

impl Receiving {
    /// Whether it is there.
    pub(super) fn is_done(&mut self) -> bool {
        self.0.is_done()
    }
}
