//! A GPU as one thread uses it.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};

use cudarc::driver::result::{self, DriverError, ctx, device, primary_ctx};
use cudarc::driver::sys::{CUcontext, CUdevice_attribute, CUresult};
use parking_lot::Mutex;

use super::driver::{self, Copy, Stream, failed};
use super::library::Library;
use super::module::Kernels;
use crate::cuda::memory::block_cache::Shelf;
use crate::cuda::memory::offload::Offloads;
use crate::cuda::memory::staging::Staging;
use crate::cuda::products::blas::Blas;
use crate::device::{Device, Place};
use crate::error::{DeviceError, Error, Left, Result};

/// A GPU as one thread uses it. The streams, kernels and memory here belong to the thread. Each rank has one
/// such thread.
#[derive(Debug)]
pub(crate) struct Gpu {
    index: u32,
    /// The compute stream.
    stream: Arc<Stream>,
    /// The stream for transfers between processes.
    transfers: Stream,
    /// The stream for copies from other devices of this process.
    copies: Stream,
    /// The stream for exchanges between processes.
    exchanges: Stream,
    kernels: Kernels,
    shelf: Shelf,
    staging: Staging,
    /// Made when something is offloaded first.
    offloads: OnceCell<Offloads>,
    /// How memory of other devices is copied.
    reached: RefCell<BTreeMap<u32, Copy>>,
    /// Made at the first matrix product.
    blas: OnceCell<Blas>,
    /// The most bytes of shared memory that a block may have.
    most_shared: usize,
}

thread_local! {
    static GPUS: RefCell<BTreeMap<u32, Rc<Gpu>>> = const { RefCell::new(BTreeMap::new()) };
    /// The device whose context is current on this thread.
    static CURRENT: Cell<Option<u32>> = const { Cell::new(None) };
}

/// One context per device, shared by all threads and kept until the process ends.
static CONTEXTS: Mutex<BTreeMap<u32, Context>> = Mutex::new(BTreeMap::new());

#[derive(Clone, Copy, Debug)]
struct Context(CUcontext);

// SAFETY: any thread may use CUDA's contexts.
unsafe impl Send for Context {}

impl Gpu {
    /// The GPU with this index. Makes it the device that CUDA uses on this thread.
    ///
    /// # Errors
    /// When there is no such GPU, or CUDA is missing or too old. The error says what to do.
    pub(crate) fn of(index: u32) -> Result<Rc<Self>> {
        let known = GPUS.with_borrow(|gpus| gpus.get(&index).cloned());
        enter(index)?;
        if let Some(gpu) = known {
            return Ok(gpu);
        }
        let gpu = Rc::new(Self::open(index)?);
        GPUS.with_borrow_mut(|gpus| gpus.insert(index, Rc::clone(&gpu)));
        Ok(gpu)
    }

    fn open(index: u32) -> Result<Self> {
        let capability = capability(index)?;
        check_capability(index, capability)?;
        let stream = Arc::new(Stream::new()?);
        Ok(Self {
            index,
            shelf: Shelf::new(index, Arc::clone(&stream))?,
            stream,
            transfers: Stream::urgent()?,
            copies: Stream::urgent()?,
            exchanges: Stream::urgent()?,
            kernels: Kernels::load(capability)?,
            staging: Staging::default(),
            offloads: OnceCell::new(),
            reached: RefCell::default(),
            blas: OnceCell::new(),
            most_shared: most_shared(index)?,
        })
    }

    /// The GPU with this index, if this thread already uses it.
    pub(crate) fn known(index: u32) -> Option<Rc<Self>> {
        // While a thread ends, this list may be gone already.
        GPUS.try_with(|gpus| gpus.try_borrow().ok()?.get(&index).cloned())
            .ok()
            .flatten()
    }

    /// The index of the GPU.
    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    /// The compute stream.
    pub(crate) fn stream(&self) -> &Stream {
        &self.stream
    }

    /// The stream for transfers between processes.
    pub(crate) fn transfers(&self) -> &Stream {
        &self.transfers
    }

    /// The stream for copies from other devices of this process.
    pub(crate) fn copies(&self) -> &Stream {
        &self.copies
    }

    /// The stream for exchanges between processes.
    pub(crate) fn exchanges(&self) -> &Stream {
        &self.exchanges
    }

    /// The kernels.
    pub(crate) fn kernels(&self) -> &Kernels {
        &self.kernels
    }

    /// The unused memory.
    pub(crate) fn shelf(&self) -> &Shelf {
        &self.shelf
    }

    /// The most bytes of shared memory that a block may have.
    pub(crate) fn most_shared(&self) -> usize {
        self.most_shared
    }

    /// Host memory for copies to and from the GPU.
    pub(crate) fn staging(&self) -> &Staging {
        &self.staging
    }

    /// What is needed to offload. Made at the first call.
    ///
    /// # Errors
    /// Whatever the device reports.
    pub(crate) fn offloads(&self) -> Result<&Offloads> {
        if let Some(offloads) = self.offloads.get() {
            return Ok(offloads);
        }
        let made = Offloads::new()?;
        Ok(self.offloads.get_or_init(|| made))
    }

    /// cuBLASLt. Made at the first call.
    ///
    /// # Errors
    /// When there is no cuBLASLt, or no memory for its workspace.
    pub(crate) fn blas(&self) -> Result<&Blas> {
        if let Some(blas) = self.blas.get() {
            return Ok(blas);
        }
        let opened = Blas::open(self)?;
        Ok(self.blas.get_or_init(|| opened))
    }

    /// How memory of another device is copied to this one. At the first call it opens direct access. If that
    /// fails, copies are correct too; `pairs` says so.
    pub(crate) fn reach(&self, other: u32) -> Copy {
        let mut reached = self.reached.borrow_mut();
        *reached
            .entry(other)
            .or_insert_with(|| Copy::from(driver::reach(self.index, other)))
    }

    /// Whether all work queued so far is done.
    pub(crate) fn is_idle(&self) -> Result<bool> {
        self.stream.is_idle()
    }

    /// Blocks until all work queued so far is done.
    pub(crate) fn synchronize(&self) -> Result<()> {
        self.stream.synchronize()
    }

    /// The free and the total memory of the device, in bytes.
    pub(crate) fn memory(&self) -> Result<Left> {
        let (free, total) = result::mem_get_info().map_err(failed("asking for free memory"))?;
        let (free, total) = (free as u64, total as u64);
        Ok(Left { free, total })
    }
}

/// Checks that the device exists and computes in this number format.
///
/// # Errors
/// When not. The error says what would work.
pub(crate) fn check(place: Place) -> Result<()> {
    match place.device {
        Device::Cpu => Ok(()),
        Device::Cuda(index) => {
            Gpu::of(index)?;
            Gpu::of(index)?.blas().map(|_| ())
        }
    }
}

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
        Err(DriverError(CUresult::CUDA_ERROR_NO_DEVICE)) => Err(DeviceError::NoGpu.into()),
        started => started.map_err(failed("starting CUDA")),
    }
}

/// The error for a device that does not exist.
pub(crate) fn missing(index: u32, count: u32) -> Error {
    let device = Device::Cuda(index);
    DeviceError::Missing { device, count }.into()
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
fn most_shared(index: u32) -> Result<usize> {
    let attribute = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN;
    ask(index, attribute, "asking for the size of shared memory").map(|bytes| bytes as usize)
}

/// Fails for a device that cannot run the kernels. They need the matrix instructions of compute capability
/// 8.0.
pub(crate) fn check_capability(index: u32, capability: (i32, i32)) -> Result<(), DeviceError> {
    if capability.0 >= 8 {
        return Ok(());
    }
    let device = Device::Cuda(index);
    Err(DeviceError::Capability { device, capability })
}
