//! What this machine has for CUDA, for people and for scripts.

use std::thread;

use cudarc::driver::result::{DriverError, ctx, device, primary_ctx};
use cudarc::driver::sys::CUdevice;

use super::context::{capability, check_capability, count, missing};
use super::failure::{self, failed};
use super::hopper;
use crate::cuda::library::{FoundLibrary, Library};
use crate::device::Device;
use crate::error::{Error, Result};

/// What this machine has for CUDA.
#[derive(Clone, Debug)]
pub struct Report {
    /// All libraries, found or not.
    pub libraries: Vec<FoundLibrary>,
    /// The GPUs in CUDA's order. If there are none, the error says why.
    pub gpus: Result<Vec<GpuReport>>,
}

/// A GPU and what runs on it.
#[derive(Clone, Debug)]
pub struct GpuReport {
    /// Its name in a config.
    pub device: Device,
    /// The manufacturer's name for it.
    pub name: String,
    /// Its compute capability: major, minor.
    pub capability: (i32, i32),
    /// Its memory in bytes.
    pub total: u64,
    /// The free memory in bytes. `None` if the GPU gives no context, for example because another process uses
    /// it exclusively.
    pub free: Option<u64>,
    /// Why the kernels do not run there. `None` if they do: in `f32`, in `bf16` and fused attention.
    pub problem: Option<Error>,
}

/// Looks for CUDA's libraries and for GPUs. Loads the libraries that it finds.
pub fn probe() -> Report {
    Report {
        libraries: Library::ALL.map(Library::find).into(),
        gpus: count().and_then(|count| (0..count).map(ask).collect()),
    }
}

/// The manufacturer's name for a GPU, and its memory in bytes.
///
/// # Errors
/// When there is no such GPU, or no CUDA. The error says what to do.
pub fn name_and_memory(index: u32) -> Result<(String, u64)> {
    let count = count()?;
    if index >= count {
        return Err(missing(index, count));
    }
    let handle = device::get(index as i32).map_err(failed("finding a device"))?;
    // SAFETY: the device is there.
    let total = unsafe { device::total_mem(handle) }.map_err(failed("asking for the memory's size"))?;
    let name = device::get_name(handle).map_err(failed("asking for a device's name"))?;
    Ok((name, total as u64))
}

/// The free memory of a GPU in bytes. `None` if there is no such GPU, or if it gives no context.
pub fn free_memory(index: u32) -> Option<u64> {
    // This loads the driver, without which nothing else may be called.
    count().ok().filter(|count| index < *count)?;
    free(device::get(index as i32).ok()?)
}

fn ask(index: u32) -> Result<GpuReport> {
    let (name, total) = name_and_memory(index)?;
    let handle = device::get(index as i32).map_err(failed("finding a device"))?;
    let capability = capability(index)?;
    Ok(GpuReport {
        device: Device::Cuda(index),
        name,
        capability,
        total,
        free: free(handle),
        problem: check_capability(index, capability)
            .and_then(|()| hopper::is_wanted(index, capability))
            .err(),
    })
}

/// The free memory in bytes. This needs a context, so it is made for a moment, on a thread of its own.
fn free(handle: CUdevice) -> Option<u64> {
    let ask = move || -> std::result::Result<u64, DriverError> {
        // SAFETY: the device is there, and nothing else on this short-lived thread uses its context.
        unsafe {
            ctx::set_current(primary_ctx::retain(handle)?)?;
            let free = failure::free_and_total().map(|[free, _]| free);
            primary_ctx::release(handle)?;
            free
        }
    };
    thread::spawn(ask).join().ok()?.ok()
}
