//! The errors of CUDA's calls.

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys::{self, CUresult};

use crate::device::Device;
use crate::error::{Error, OutOfMemory};

/// The error for a failed CUDA call. `call` names the operation.
pub(crate) fn failed(call: &str) -> impl FnOnce(DriverError) -> Error {
    move |error| match error {
        DriverError(CUresult::CUDA_ERROR_OUT_OF_MEMORY) => no_memory_for(call),
        error => refused(call, error),
    }
}

/// The error when the thread's current device has too little memory for a call that does not say how much it
/// needs.
pub(crate) fn no_memory_for(call: &str) -> Error {
    let mut index = 0;
    // SAFETY: the pointer is to a local that outlives the call. Without a current context it stays 0.
    let _ = unsafe { sys::cuCtxGetDevice(&mut index) };
    OutOfMemory::for_call(Device::Cuda(index as u32), call, free_and_total().ok()).into()
}

/// The free and the total memory of the thread's current device, in bytes.
pub(crate) fn free_and_total() -> Result<[u64; 2], DriverError> {
    result::mem_get_info().map(|(free, total)| [free as u64, total as u64])
}

fn refused(call: &str, error: DriverError) -> Error {
    let name = error.error_name().map(|name| name.to_string_lossy().into_owned());
    let name = name.unwrap_or_else(|_| format!("{:?}", error.0));
    let meaning = error.error_string().map_or(String::new(), |text| format!(", {}", text.to_string_lossy()));
    Error::new(format!("{call}: {name}{meaning}{}", remedy(error.0)))
}

fn remedy(code: CUresult) -> &'static str {
    match code {
        // A GPU runs behind the program, so a later call may report the error.
        CUresult::CUDA_ERROR_ILLEGAL_ADDRESS
        | CUresult::CUDA_ERROR_LAUNCH_FAILED
        | CUresult::CUDA_ERROR_MISALIGNED_ADDRESS
        | CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION => {
            "; the fault may lie in work given before this call: with all ranks in one process and \
             CUDA_LAUNCH_BLOCKING=1, the call that is at fault fails"
        }
        CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE => {
            "; another program may have the GPU: `nvidia-smi` lists them"
        }
        _ => "",
    }
}
