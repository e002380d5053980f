//! CUDA's streams, events and memory. Each has one owner, and is freed when the owner is dropped.

use std::ffi::c_void;

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys::{
    self, CUevent_flags, CUmemAccess_flags, CUmemAccessDesc, CUmemLocation, CUmemLocationType, CUmemoryPool,
    CUresult, CUstream, CUstream_flags,
};

use super::context::{context_of, free_in};
use super::failure::failed;
use crate::error::Result;

/// An address on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ptr(pub(crate) u64);

impl Ptr {
    /// No address, for an argument that a kernel does not need.
    pub(crate) const NONE: Self = Self(0);

    /// The address this many bytes further.
    pub(crate) fn offset(self, bytes: usize) -> Self {
        Self(self.0 + bytes as u64)
    }
}

/// A queue of work, which a device does in order.
#[derive(Debug)]
pub(crate) struct Stream(CUstream);

// SAFETY: any thread may use CUDA's streams, several at the same time.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

impl Stream {
    /// A stream in the thread's current context, of the least priority. It does not wait for the default
    /// stream.
    pub(crate) fn new() -> Result<Self> {
        Self::of_priority(0)
    }

    /// Like [`Stream::new`]: its kernels begin before waiting kernels of such streams.
    pub(crate) fn preferred() -> Result<Self> {
        let [least, greatest] = priorities()?;
        Self::of_priority(greatest.max(least - 1))
    }

    /// Like [`Stream::new`], for transfers: its kernels begin before waiting kernels of other streams.
    /// Transfers need few of the device's processors, and other ranks wait for them.
    pub(crate) fn urgent() -> Result<Self> {
        let [_, greatest] = priorities()?;
        Self::of_priority(greatest)
    }

    fn of_priority(priority: i32) -> Result<Self> {
        let (mut stream, flags) = (std::ptr::null_mut(), CUstream_flags::CU_STREAM_NON_BLOCKING as u32);
        // SAFETY: the pointer is to a local that outlives the call.
        unsafe { sys::cuStreamCreateWithPriority(&mut stream, flags, priority) }
            .result()
            .map_err(failed("making a stream"))?;
        Ok(Self(stream))
    }

    /// CUDA's handle.
    pub(crate) fn raw(&self) -> CUstream {
        self.0
    }

    /// Makes later work on this stream wait for the event's latest record.
    pub(crate) fn wait(&self, event: &Event) -> Result<()> {
        // SAFETY: both are alive, because their owners are.
        unsafe { sys::cuStreamWaitEvent(self.0, event.0, 0) }.result().map_err(failed("waiting for an event"))
    }

    /// Blocks until all queued work is done.
    pub(crate) fn synchronize(&self) -> Result<()> {
        // SAFETY: the stream is alive, because its owner is.
        unsafe { result::stream::synchronize(self.0) }.map_err(failed("waiting for a device"))
    }

    /// Whether all queued work is done.
    pub(crate) fn is_idle(&self) -> Result<bool> {
        // SAFETY: the stream is alive, because its owner is.
        is_done(unsafe { sys::cuStreamQuery(self.0) })
    }
}

/// The least and the greatest priority of streams. A smaller number is a greater priority.
fn priorities() -> Result<[i32; 2]> {
    let (mut least, mut greatest) = (0, 0);
    // SAFETY: the pointers are to locals that outlive the call.
    unsafe { sys::cuCtxGetStreamPriorityRange(&mut least, &mut greatest) }
        .result()
        .map_err(failed("asking for the priorities of streams"))?;
    Ok([least, greatest])
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: nobody else has the handle. When a process ends, the driver may be gone already; then there
        // is nothing to do.
        let _ = unsafe { result::stream::destroy(self.0) };
    }
}

/// A point in a stream's work.
#[derive(Debug)]
pub(crate) struct Event(sys::CUevent);

// SAFETY: any thread may record CUDA's events and wait for them.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    /// An event in the thread's current context. If `timed`, it also records when it was reached.
    pub(crate) fn new(timed: bool) -> Result<Self> {
        let flags =
            if timed { CUevent_flags::CU_EVENT_DEFAULT } else { CUevent_flags::CU_EVENT_DISABLE_TIMING };
        result::event::create(flags).map(Self).map_err(failed("making an event"))
    }

    /// Makes the event stand for all work that is queued on the stream now.
    pub(crate) fn record(&self, stream: &Stream) -> Result<()> {
        // SAFETY: both are alive, because their owners are.
        unsafe { result::event::record(self.0, stream.0) }.map_err(failed("recording an event"))
    }

    /// Whether the device has reached it.
    pub(crate) fn is_done(&self) -> Result<bool> {
        // SAFETY: the event is alive, because its owner is.
        is_done(unsafe { sys::cuEventQuery(self.0) })
    }

    /// Blocks until the device has reached it.
    pub(crate) fn synchronize(&self) -> Result<()> {
        // SAFETY: the event is alive, because its owner is.
        unsafe { result::event::synchronize(self.0) }.map_err(failed("waiting for a device"))
    }

    /// Milliseconds from an earlier event to this one. Both must be timed and reached.
    pub(crate) fn since(&self, earlier: &Event) -> Result<f32> {
        // SAFETY: both are alive, because their owners are.
        unsafe { result::event::elapsed(earlier.0, self.0) }.map_err(failed("reading an event's time"))
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: nobody else has the handle.
        let _ = unsafe { result::event::destroy(self.0) };
    }
}

fn is_done(code: CUresult) -> Result<bool> {
    match code {
        CUresult::CUDA_ERROR_NOT_READY => Ok(false),
        code => code.result().map(|()| true).map_err(failed("asking a device how far it is")),
    }
}

/// Device memory with unspecified contents. `None` if there is not enough.
pub(crate) fn allocate(bytes: usize, stream: &Stream) -> Result<Option<Ptr>> {
    // SAFETY: the stream is alive, because its owner is.
    match unsafe { result::malloc_async(stream.0, bytes) } {
        Ok(address) => Ok(Some(Ptr(address))),
        Err(DriverError(CUresult::CUDA_ERROR_OUT_OF_MEMORY)) => Ok(None),
        Err(error) => Err(failed("taking memory")(error)),
    }
}

/// Frees device memory once the stream has done the work queued so far.
///
/// # Safety
/// The memory came from [`allocate`] on the stream's device, and no later work uses it.
pub(crate) unsafe fn free_in_order(address: Ptr, stream: &Stream) -> Result<()> {
    // SAFETY: the caller's promise.
    unsafe { result::free_async(address.0, stream.0) }.map_err(failed("giving memory back"))
}

/// Makes CUDA release freed memory, so that it can serve allocations of other sizes.
pub(crate) fn trim(device: u32) -> Result<()> {
    let pool = pool(device)?;
    // SAFETY: the pool is the device's own, which is never destroyed.
    unsafe { result::mem_pool::trim_to(pool, 0) }.map_err(failed("trimming the memory pool"))
}

/// The pool that a device's memory comes from.
pub(crate) fn pool(device: u32) -> Result<CUmemoryPool> {
    let handle = result::device::get(device as i32).map_err(failed("finding a device"))?;
    // SAFETY: the device is there; it was found just above.
    unsafe { result::device::get_default_mem_pool(handle) }.map_err(failed("finding the memory pool"))
}

/// How a copy between two devices is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Copy {
    /// As within a device: the memory of one is mapped on the other.
    Direct,
    /// As the driver can, which may be through the host.
    AsItCan,
}

impl From<Result<bool>> for Copy {
    /// From the result of [`reach`].
    fn from(reached: Result<bool>) -> Self {
        match reached {
            Ok(true) => Self::Direct,
            Ok(false) | Err(_) => Self::AsItCan,
        }
    }
}

/// Maps one device's memory, `to`, on another, if they have a link. Returns whether they have.
pub(crate) fn reach(from: u32, to: u32) -> Result<bool> {
    let mut can = 0;
    // SAFETY: the pointer is to a local that outlives the call; both devices are there.
    unsafe { sys::cuDeviceCanAccessPeer(&mut can, from as i32, to as i32) }
        .result()
        .map_err(failed("asking for a link between devices"))?;
    if can == 0 {
        return Ok(false);
    }
    let access = CUmemAccessDesc {
        location: CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: from as i32 },
        flags: CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    };
    // SAFETY: the pointer is to a local that outlives the call; pools are never destroyed.
    unsafe { sys::cuMemPoolSetAccess(pool(to)?, &access, 1) }
        .result()
        .map_err(failed("opening a device's memory to another"))
        .map(|()| true)
}

/// Frees device memory once all work queued so far is done.
///
/// # Safety
/// The memory came from [`allocate`] on this device, and no later work uses it.
pub(crate) unsafe fn free(address: Ptr, device: u32) {
    free_in(device, || {
        // SAFETY: the caller's promise. If the device has failed, the memory stays allocated.
        let _ = unsafe { result::ctx::synchronize().and_then(|()| result::free_sync(address.0)) };
    });
}

/// Copies bytes within a device.
///
/// # Safety
/// Both ranges lie in live allocations, and using them in the order of the stream is correct.
pub(crate) unsafe fn copy(to: Ptr, from: Ptr, bytes: usize, stream: &Stream) -> Result<()> {
    // SAFETY: the caller's promise.
    unsafe { result::memcpy_dtod_async(to.0, from.0, bytes, stream.0) }.map_err(failed("copying on a device"))
}

/// Copies bytes from one device to another.
///
/// # Safety
/// As [`copy`]. A direct copy needs memory that is [mapped](reach) on the stream's device.
pub(crate) unsafe fn copy_across(
    to: (Ptr, u32),
    from: (Ptr, u32),
    bytes: usize,
    how: Copy,
    stream: &Stream,
) -> Result<()> {
    if how == Copy::Direct {
        // SAFETY: the caller's promise.
        return unsafe { copy(to.0, from.0, bytes, stream) };
    }
    let (to_context, from_context) = (context_of(to.1)?, context_of(from.1)?);
    // SAFETY: the caller's promise; contexts are never released.
    unsafe { result::memcpy_peer_async(to_context, to.0.0, from_context, from.0.0, bytes, stream.0) }
        .map_err(failed("copying between devices"))
}

/// Copies bytes to a device.
///
/// # Safety
/// As [`copy`], and the host memory must not change until the copy is done.
pub(crate) unsafe fn upload(to: Ptr, from: *const c_void, bytes: usize, stream: &Stream) -> Result<()> {
    // SAFETY: the caller's promise.
    unsafe { sys::cuMemcpyHtoDAsync_v2(to.0, from, bytes, stream.0) }
        .result()
        .map_err(failed("copying to a device"))
}

/// Copies bytes from a device.
///
/// # Safety
/// As [`copy`], and nobody else may use the host memory until the copy is done.
pub(crate) unsafe fn download(to: *mut c_void, from: Ptr, bytes: usize, stream: &Stream) -> Result<()> {
    // SAFETY: the caller's promise.
    unsafe { sys::cuMemcpyDtoHAsync_v2(to, from.0, bytes, stream.0) }
        .result()
        .map_err(failed("copying from a device"))
}

/// Sets bytes to zero.
///
/// # Safety
/// As [`copy`].
pub(crate) unsafe fn clear(at: Ptr, bytes: usize, stream: &Stream) -> Result<()> {
    // SAFETY: the caller's promise.
    unsafe { result::memset_d8_async(at.0, 0, bytes, stream.0) }.map_err(failed("clearing memory"))
}
