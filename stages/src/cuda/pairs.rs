//! How fast the GPUs of this machine copy from each other, and to the host and back.

use std::ffi::c_void;
use std::thread;

use super::context::{count, enter};
use super::driver::{self, Copy, Event, Stream};
use super::failure::no_memory_for;
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
    let measured = apart(move || {
        let direct = enter(to).and_then(|()| driver::reach(to, from));
        let how = Copy::from(direct);
        Ok((how == Copy::Direct, speed(from, to, how)))
    });
    let (direct, speed) = measured.unwrap_or_else(|error| (false, Err(error)));
    Pair { from: Device::Cuda(from), to: Device::Cuda(to), direct, speed }
}

/// Runs this on a thread of its own, because it changes the thread's current context.
fn apart<T: Send + 'static>(measure: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let measured = thread::spawn(measure).join();
    measured.unwrap_or_else(|_| Err(Error::new("measuring a copy panicked")))
}

/// Bytes a second from one GPU to another.
fn speed(from: u32, to: u32, how: Copy) -> Result<f64> {
    let (source, copy) = (Lent::of(from)?, Lent::of(to)?);
    timed([Stream::urgent()?], |[stream]| {
        // SAFETY: both blocks are as large as the copy, and only this thread has them.
        unsafe { driver::copy_across((copy.at, to), (source.at, from), BYTES, how, stream) }
    })
}

/// Bytes a second between a GPU and page-locked memory of the host, in copies of 32 MiB: of the slower
/// direction, while both are copied in at once.
///
/// # Errors
/// When there is no such GPU, or either has less than 64 MiB of free memory. Whatever the GPU reports.
pub fn host_speed(gpu: u32) -> Result<f64> {
    apart(move || {
        let device = [Lent::of(gpu)?, Lent::of(gpu)?];
        let host = [Pinned::new(BYTES)?, Pinned::new(BYTES)?];
        timed([Stream::urgent()?, Stream::urgent()?], |[out, back]| {
            let (to, from) = (host[0].at().0 as *mut c_void, host[1].at().0 as *const c_void);
            // SAFETY: all are as large as the copy, and only this thread has them.
            unsafe {
                driver::download(to, device[0].at, BYTES, out)?;
                driver::upload(device[1].at, from, BYTES, back)
            }
        })
    })
}

/// Bytes a second of copies on each of these streams at once, of the slowest. The first copies are not timed.
fn timed<const N: usize>(streams: [Stream; N], copy: impl Fn(&[Stream; N]) -> Result<()>) -> Result<f64> {
    let record = || {
        streams.iter().map(|stream| {
            let event = Event::new(true)?;
            event.record(stream)?;
            Ok(event)
        })
    };
    copy(&streams)?;
    let begun = record().collect::<Result<Vec<Event>>>()?;
    (0..COPIES).try_for_each(|_| copy(&streams))?;
    let done = record().collect::<Result<Vec<Event>>>()?;
    let mut longest = 0.0_f64;
    for (begun, done) in begun.iter().zip(&done) {
        done.synchronize()?;
        longest = longest.max(f64::from(done.since(begun)?) / 1e3);
    }
    Ok((COPIES * BYTES) as f64 / longest)
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
