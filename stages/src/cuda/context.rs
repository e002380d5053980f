//! The GPUs that are there, and their contexts.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ptr;
use std::sync::OnceLock;

use cudarc::driver::result::{self, DriverError, ctx, device, primary_ctx};
use cudarc::driver::sys::{CUcontext, CUdevice_attribute, CUresult};
use parking_lot::Mutex;

use crate::cuda::failure::failed;
use crate::cuda::library::Library;
use crate::device::Device;
use crate::error::{Error, Result};

thread_local! {
    /// The device whose context is current on this thread.
    static CURRENT: Cell<Option<u32>> = const { Cell::new(None) };
}

/// One context per device, shared by all threads and kept until the process ends.
static CONTEXTS: Mutex<BTreeMap<u32, Context>> = Mutex::new(BTreeMap::new());

#[derive(Clone, Copy, Debug)]
struct Context(CUcontext);

// SAFETY: any thread may use CUDA's contexts.
unsafe impl Send for Context {}

/// Makes the device's context the current one of this thread.
pub(crate) fn enter(index: u32) -> Result<()> {
    if CURRENT.get() == Some(index) {
        return Ok(());
    }
    let context = context(index)?;
    // SAFETY: contexts are never released.
    unsafe { ctx::set_current(context.0) }.map_err(failed("entering a device's context"))?;
    CURRENT.set(Some(index));
    Ok(())
}

/// Like [`enter`], to give back what a device has. Nobody can be told that this failed, and what is not given
/// back is lost. So it is tried twice.
pub(crate) fn enter_to_free(index: u32) -> Result<()> {
    enter(index).or_else(|_| enter(index))
}

/// Gives back, with [`enter_to_free`], what a device has. Afterwards the thread has the context from before.
pub(crate) fn free_in(index: u32, free: impl FnOnce()) {
    let (known, before) = (CURRENT.get(), ctx::get_current());
    let Ok(before) = before else { return };
    if enter_to_free(index).is_err() {
        return;
    }
    free();
    if known == Some(index) {
        return;
    }
    // SAFETY: contexts are never released.
    let go_back = || unsafe { ctx::set_current(before.unwrap_or(ptr::null_mut())) };
    let is_back = go_back().or_else(|_| go_back()).is_ok();
    // If it is not, the next `enter` must not take the thread's context for the current one.
    CURRENT.set(known.filter(|_| is_back));
}

/// The GPU whose context is the current one of this thread.
pub(crate) fn current() -> Option<u32> {
    CURRENT.get()
}

/// The context of a device.
pub(crate) fn context_of(index: u32) -> Result<CUcontext> {
    context(index).map(|context| context.0)
}

fn context(index: u32) -> Result<Context> {
    let mut contexts = CONTEXTS.lock();
    if let Some(context) = contexts.get(&index) {
        return Ok(*context);
    }
    let count = count()?;
    if index >= count {
        return Err(missing(index, count));
    }
    let handle = device::get(index as i32).map_err(failed("finding a device"))?;
    // SAFETY: the device is there; it was found just above.
    let raw = unsafe { primary_ctx::retain(handle) }.map_err(failed("making a device's context"))?;
    contexts.insert(index, Context(raw));
    Ok(Context(raw))
}

/// The number of GPUs.
///
/// # Errors
/// When there is no CUDA driver, it is too old, or it has no GPU.
pub(crate) fn count() -> Result<u32> {
    static READY: OnceLock<Result<()>> = OnceLock::new();
    READY.get_or_init(start).clone()?;
    let count = device::get_count().map_err(failed("counting devices"))?;
    Ok(count as u32)
}

/// Starts CUDA. Called once per process.
fn start() -> Result<()> {
    Library::Driver.require()?;
    match result::init() {
        Err(DriverError(CUresult::CUDA_ERROR_NO_DEVICE)) => Err(Error::new(
            "the CUDA driver is there and has no GPU (`nvidia-smi -L` lists those of the machine; \
             CUDA_VISIBLE_DEVICES hides some)",
        )),
        started => started.map_err(failed("starting CUDA")),
    }
}

/// How many multiprocessors a device has.
pub(crate) fn multiprocessors(index: u32) -> Result<usize> {
    let attribute = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
    ask(index, attribute, "counting multiprocessors").map(|count| count as usize)
}

/// The error for a device that does not exist.
pub(crate) fn missing(index: u32, count: u32) -> Error {
    let gpus: Vec<_> = (0..count).map(|index| Device::Cuda(index).to_string()).collect();
    let seen = if gpus.is_empty() { "no GPU".to_owned() } else { gpus.join(", ") };
    Error::new(format!(
        "there is no {}: CUDA sees {seen} (`pipewright devices` lists them; CUDA_VISIBLE_DEVICES hides some)",
        Device::Cuda(index)
    ))
}

fn ask(index: u32, attribute: CUdevice_attribute, what: &'static str) -> Result<i32> {
    let handle = device::get(index as i32).map_err(failed("finding a device"))?;
    // SAFETY: the device is there, because it has a context.
    unsafe { device::get_attribute(handle, attribute) }.map_err(failed(what))
}

/// The device's compute capability.
pub(crate) fn capability(index: u32) -> Result<(i32, i32)> {
    let ask = |attribute| ask(index, attribute, "asking for the compute capability");
    Ok((
        ask(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
        ask(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
    ))
}

/// The most bytes of shared memory that a block of the device may have.
pub(crate) fn most_shared(index: u32) -> Result<usize> {
    let attribute = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN;
    ask(index, attribute, "asking for the size of shared memory").map(|bytes| bytes as usize)
}

/// Fails for a device that cannot run the kernels. They need the matrix instructions of compute capability
/// 8.0.
pub(crate) fn check_capability(index: u32, capability: (i32, i32)) -> Result<()> {
    if capability.0 >= 8 {
        return Ok(());
    }
    Err(Error::new(format!(
        "{} has compute capability {}.{}, and the kernels need 8.0 (Ampere) or newer",
        Device::Cuda(index),
        capability.0,
        capability.1
    )))
}
