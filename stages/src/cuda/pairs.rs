//! How fast the GPUs of this machine copy from each other, and to the host and back.

use std::ffi::c_void;
use std::thread;

use cudarc::driver::result::ctx;

use super::context::{context_of, count};
use super::driver::{self, Copy, Event, Stream};
use super::failure::{failed, no_memory_for};
use super::{Pinned, Ptr};
use crate::device::Device;
use crate::error::{Error, Result};

/// The bytes of a copy that is timed. About as many as an activation of a large model has.
const BYTES: usize = 32 << 20;

/// How many copies are timed together.
const COPIES: usize = 4;

/// Copies from one GPU of this machine to another.
#[derive(Clone, Debug)]
pub struct Pair {
    /// The GPU that is copied from.
    pub from: Device,
    /// The GPU that is copied to.
    pub to: Device,
    /// Whether a copy goes straight from one memory to the other. Otherwise it may go through the host's.
    pub direct: bool,
    /// Bytes a second of copies of 32 MiB, or why it cannot be measured now, such as too little free memory.
    pub speed: Result<f64>,
}

/// Copies between each two of this machine's GPUs, in both directions, one after the other. Empty with fewer
/// than two GPUs. Each GPU needs 32 MiB of free memory for it.
pub fn pairs() -> Vec<Pair> {
    let all = 0..count().unwrap_or(0);
    let pairs = all.clone().flat_map(|from| all.clone().map(move |to| (from, to)));
    pairs.filter(|(from, to)| from != to).map(measured).collect()
}

fn measured((from, to): (u32, u32)) -> Pair {
    // On a thread of its own, because it changes the thread's current context.
    let measured = thread::spawn(move || {
        let direct = enter(to).and_then(|()| driver::reach(to, from));
        let how = Copy::from(direct);
        (how == Copy::Direct, speed(from, to, how))
    });
    let (direct, speed) =
        measured.join().unwrap_or_else(|_| (false, Err(Error::other("measuring a copy panicked"))));
    Pair { from: Device::Cuda(from), to: Device::Cuda(to), direct, speed }
}

/// Bytes a second from one GPU to another.
fn speed(from: u32, to: u32, how: Copy) -> Result<f64> {
    let source = Lent::of(from)?;
    let copy = Lent::of(to)?;
    let stream = Stream::urgent()?;
    let [begun, done] = [Event::new(true)?, Event::new(true)?];
    for round in 0..=COPIES {
        if round == 1 {
            begun.record(&stream)?;
        }
        // SAFETY: both blocks are as large as the copy, and only this thread has them.
        unsafe { driver::copy_across((copy.at, to), (source.at, from), BYTES, how, &stream) }?;
    }
    done.record(&stream)?;
    done.synchronize()?;
    let seconds = f64::from(done.since(&begun)?) / 1e3;
    Ok((COPIES * BYTES) as f64 / seconds)
}

/// Bytes a second between a GPU and page-locked memory of the host, in copies of 32 MiB: of the slower
/// direction, while both are copied in at once.
///
/// # Errors
/// When there is no such GPU, or either has less than 64 MiB of free memory. Whatever the GPU reports.
pub fn host_speed(gpu: u32) -> Result<f64> {
    // On a thread of its own, because it changes the thread's current context.
    let measured = thread::spawn(move || both_ways(gpu));
    let panicked = || Err(Error::other("measuring a copy panicked"));
    measured.join().unwrap_or_else(|_| panicked())
}

fn both_ways(gpu: u32) -> Result<f64> {
    let device = [Lent::of(gpu)?, Lent::of(gpu)?];
    let host = [Pinned::new(BYTES)?, Pinned::new(BYTES)?];
    let [out, back] = [Stream::urgent()?, Stream::urgent()?];
    let begun = [Event::new(true)?, Event::new(true)?];
    let done = [Event::new(true)?, Event::new(true)?];
    for round in 0..=COPIES {
        if round == 1 {
            begun[0].record(&out)?;
            begun[1].record(&back)?;
        }
        let to = host[0].at().0 as *mut c_void;
        let from = host[1].at().0 as *const c_void;
        // SAFETY: all are as large as the copy, and only this thread has them.
        unsafe {
            driver::download(to, device[0].at, BYTES, &out)?;
            driver::upload(device[1].at, from, BYTES, &back)?;
        }
    }
    done[0].record(&out)?;
    done[1].record(&back)?;
    let mut longest = 0.0_f64;
    for (begun, done) in begun.iter().zip(&done) {
        done.synchronize()?;
        longest = longest.max(f64::from(done.since(begun)?) / 1e3);
    }
    Ok((COPIES * BYTES) as f64 / longest)
}

fn enter(index: u32) -> Result<()> {
    // SAFETY: contexts are never released.
    unsafe { ctx::set_current(context_of(index)?) }.map_err(failed("entering a device's context"))
}

/// Memory of a device while a copy is timed.
struct Lent {
    at: Ptr,
    device: u32,
}

impl Lent {
    /// Makes the device's context the current one.
    fn of(device: u32) -> Result<Self> {
        enter(device)?;
        let stream = Stream::new()?;
        let at = driver::allocate(BYTES, &stream)?.ok_or_else(|| no_memory_for("timing a copy"))?;
        stream.synchronize()?;
        Ok(Self { at, device })
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        // SAFETY: nobody else has the memory, and its last use is over.
        unsafe { driver::free(self.at, self.device) };
    }
}
