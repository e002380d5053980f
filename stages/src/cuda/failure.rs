//! The errors of CUDA's calls.

use std::borrow::Cow;

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys::{self, CUresult};

use crate::device::Device;
use crate::error::library::Library;
use crate::error::{CudaError, CudaRemedy, Error, Left, OutOfMemory, Purpose, Wanted};

/// The error for a failed CUDA call. `call` names the operation.
pub(crate) fn failed(call: &str) -> impl FnOnce(DriverError) -> Error {
    move |error| match error {
        DriverError(CUresult::CUDA_ERROR_OUT_OF_MEMORY) => no_memory_for(call),
        error => refused(call, error).into(),
    }
}

/// The error when the thread's current device has too little memory for a call that does not say how much it
/// needs.
pub(crate) fn no_memory_for(call: &str) -> Error {
    let left = result::mem_get_info().ok();
    let mut index = 0;
    // SAFETY: the pointer is to a local that outlives the call. Without a current context it stays 0.
    let _ = unsafe { sys::cuCtxGetDevice(&mut index) };
    let error = OutOfMemory {
        device: Device::Cuda(index as u32),
        wanted: Wanted::For(call.to_owned()),
        left: left.map(|(free, total)| Left { free: free as u64, total: total as u64 }),
        purpose: Purpose::Stage,
    };
    error.into()
}

/// As [`failed`], but as the driver's error type.
fn refused(call: &str, error: DriverError) -> CudaError {
    let name = error.error_name().map(|name| name.to_string_lossy());
    let meaning = error.error_string().map(|text| text.to_string_lossy());
    CudaError {
        library: Library::Driver,
        call: call.to_owned(),
        code: error.0 as u32,
        name: name.map_or_else(|_| format!("{:?}", error.0), Cow::into_owned),
        meaning: meaning.ok().map(Cow::into_owned),
        remedy: remedy(error.0),
    }
}

fn remedy(code: CUresult) -> Option<CudaRemedy> {
    match code {
        CUresult::CUDA_ERROR_ILLEGAL_ADDRESS
        | CUresult::CUDA_ERROR_LAUNCH_FAILED
        | CUresult::CUDA_ERROR_MISALIGNED_ADDRESS
        | CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION => Some(CudaRemedy::FindCall),
        CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE => Some(CudaRemedy::EndOthers),
        _ => None,
    }
}
