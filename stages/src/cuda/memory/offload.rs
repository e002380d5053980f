//! What a GPU needs to keep activations in host memory: see `Offloaded`. State of the optimizer that is there
//! takes the same streams.

use std::cell::RefCell;
use std::ffi::c_void;

use crate::cuda::driver::{self, Event, Stream};
use crate::cuda::memory::device::Memory;
use crate::cuda::memory::pinned::Pinned;
use crate::error::Result;
use crate::pool::Shelves;

/// Where a tensor begins in host memory: at a multiple of this number of bytes.
pub(crate) const GRAIN: usize = 256;

/// From the device to the host, or from there to the device.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Direction {
    Out,
    Back,
}

/// What a thread's GPU needs to offload.
pub(crate) struct Offloads {
    out: Stream,
    back: Stream,
    /// The work that a copy begins after.
    before: Event,
    /// Host memory that is free, by its size.
    pub(crate) rooms: Shelves<Room>,
    /// Lists that are used again.
    pub(crate) lists: RefCell<Vec<Vec<Block>>>,
}

/// Page-locked memory for what is kept of one micro-batch.
#[derive(Debug)]
pub(crate) struct Room {
    /// In bytes.
    pub(crate) size: usize,
    pub(crate) host: Pinned,
    pub(crate) copied: Event,
}

/// Memory that tensors share.
#[derive(Debug)]
pub(crate) struct Block {
    /// While it is on the device.
    pub(crate) memory: Option<Memory>,
    /// Where it is in the room.
    pub(crate) start: usize,
    pub(crate) bytes: usize,
}

impl std::fmt::Debug for Offloads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Offloads").finish_non_exhaustive()
    }
}

impl Offloads {
    pub(crate) fn new() -> Result<Self> {
        Ok(Self {
            out: Stream::urgent()?,
            back: Stream::urgent()?,
            before: Event::new(false)?,
            rooms: Shelves::new(),
            lists: RefCell::default(),
        })
    }

    /// The stream of the copies in this direction.
    pub(crate) fn stream(&self, direction: Direction) -> &Stream {
        match direction {
            Direction::Out => &self.out,
            Direction::Back => &self.back,
        }
    }

    /// Makes later copies in this direction wait for all work on the compute stream so far.
    pub(crate) fn begin(&self, direction: Direction, compute: &Stream) -> Result<()> {
        self.before.record(compute)?;
        self.stream(direction).wait(&self.before)
    }

    /// Copies a block to its place in the room, or back.
    pub(crate) fn copy(&self, direction: Direction, block: &Block, room: &Room) -> Result<()> {
        let device = block.memory.as_ref().expect("it is on the device").at();
        let host = room.host.at().offset(block.start).0 as *mut c_void;
        // SAFETY: both are as large as the copy. Nobody else has the room. Device memory stays, and the room
        // is not used again, until the compute stream has waited for the copy. Out comes before back.
        unsafe {
            match direction {
                Direction::Out => driver::download(host, device, block.bytes, &self.out),
                Direction::Back => driver::upload(device, host, block.bytes, &self.back),
            }
        }
    }
}
