//! The device memory through which numbers of the host pass while kernels change them.

use std::cell::Cell;
use std::ffi::c_void;

use crate::cuda::driver::{self, Event, Ptr, Stream};
use crate::cuda::memory::device::Memory;
use crate::cuda::memory::offload::{Direction, Offloads};
use crate::cuda::streams::Streams;
use crate::error::Result;

/// How many bays there are: one is filled while kernels work in another one, and the third is emptied.
const BAYS: usize = 3;

/// The bytes of a bay. A copy of half of it, such as one of two moments, takes 160 us at 25 GB/s. To begin it
/// takes about 10 us, so longer copies are hardly faster. And all bays are little beside a model that needs
/// them.
pub(crate) const BAY: usize = 8 << 20;

/// The bytes of a GPU's memory through which an optimizer's state passes that is on the host: see
/// [`Parameter::keep_state_on_host`](crate::Parameter::keep_state_on_host).
pub const PASSAGE: usize = BAYS * BAY;

/// Bays of device memory, which are used in turn. Copies to the device, work there and copies back go on at
/// once, each in a bay of its own.
#[derive(Debug)]
pub(crate) struct Passage {
    bays: [Bay; BAYS],
    next: Cell<usize>,
}

/// The event of its memory marks the end of the last copy back.
#[derive(Debug)]
struct Bay {
    memory: Memory,
    filled: Event,
    changed: Event,
}

/// Bytes that pass.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Passing {
    /// Where they are in page-locked memory of the host.
    pub(crate) host: Ptr,
    /// Where they come in the bay.
    pub(crate) start: usize,
    pub(crate) bytes: usize,
}

impl Passage {
    pub(crate) fn new(gpu: &Streams) -> Result<Self> {
        let bay = || -> Result<Bay> {
            let memory = gpu.lasting_memory_of(BAY)?;
            gpu.mark_ready(&memory)?;
            Ok(Bay { memory, filled: Event::new(false)?, changed: Event::new(false)? })
        };
        Ok(Self { bays: [bay()?, bay()?, bay()?], next: Cell::new(0) })
    }

    /// Copies these bytes into a bay, lets `act` queue work with it on the compute stream, and copies them
    /// back. Later copies to the device do not wait for the copy back, unless they use the same bay.
    pub(crate) fn pass(
        &self,
        offloads: &Offloads,
        compute: &Stream,
        all: &[Passing],
        act: impl FnOnce(Ptr) -> Result<()>,
    ) -> Result<()> {
        let bay = &self.bays[self.next.replace((self.next.get() + 1) % BAYS)];
        let passed = bay.pass(offloads, compute, all, act);
        if passed.is_err() {
            // Nothing says when the bay is free, so the host waits. If that fails too, the device has failed,
            // and the next call reports it.
            for stream in [offloads.stream(Direction::Back), compute, offloads.stream(Direction::Out)] {
                let _ = stream.synchronize();
            }
        }
        passed
    }
}

impl Bay {
    fn pass(
        &self,
        offloads: &Offloads,
        compute: &Stream,
        all: &[Passing],
        act: impl FnOnce(Ptr) -> Result<()>,
    ) -> Result<()> {
        let [back, out] = [Direction::Back, Direction::Out].map(|direction| offloads.stream(direction));
        self.memory.awaited_by(back)?;
        for &Passing { host, start, bytes } in all {
            let at = self.memory.at().offset(start);
            // SAFETY: both are as large as the copy. Page-locked memory is freed when no copy uses it.
            unsafe { driver::upload(at, host.0 as *mut c_void, bytes, back) }?;
        }
        self.filled.record(back)?;
        compute.wait(&self.filled)?;
        act(self.memory.at())?;
        self.changed.record(compute)?;
        out.wait(&self.changed)?;
        for &Passing { host, start, bytes } in all {
            let at = self.memory.at().offset(start);
            // SAFETY: as above.
            unsafe { driver::download(host.0 as *mut c_void, at, bytes, out) }?;
        }
        self.memory.used_on(out)
    }
}
