//! Calls of the driver, of NVRTC and of NCCL, for tests of the emulator.
#![allow(dead_code, reason = "every test program uses a part of it")]

use std::ffi::{CString, c_void};
use std::ptr::{null, null_mut};

use cudarc::driver::result;
use cudarc::driver::sys::{
    self, CUdeviceptr, CUfunction, CUresult, CUstream, CUtensorMap, CUtensorMapDataType,
    CUtensorMapFloatOOBfill, CUtensorMapInterleave, CUtensorMapL2promotion, CUtensorMapSwizzle,
};
use cudarc::nccl::sys::ncclConfig_t;
use cudarc::nvrtc;
use emulator::Cuda;

/// Makes a device of the emulator current. False if there is no emulator.
pub(crate) fn enter(device: i32) -> bool {
    if !matches!(emulator::start(), Cuda::Emulated(_)) {
        return false;
    }
    result::init().expect("the emulator");
    let device = result::device::get(device).expect("a device");
    // SAFETY: the device is there, and the context is never released.
    unsafe { result::ctx::set_current(result::primary_ctx::retain(device).expect("a context")) }
        .expect("a context");
    true
}

/// A stream of the current device.
pub(crate) fn stream() -> CUstream {
    let mut stream = null_mut();
    // SAFETY: the address is a local's.
    unsafe { sys::cuStreamCreate(&mut stream, 1) }.result().expect("a stream");
    stream
}

/// Memory for this many numbers.
pub(crate) fn allocate(count: usize, stream: CUstream) -> CUdeviceptr {
    // SAFETY: the stream is alive.
    unsafe { result::malloc_async(stream, count * 4) }.expect("memory")
}

/// Numbers in memory of their own.
pub(crate) fn upload<T: Copy>(numbers: &[T], stream: CUstream) -> CUdeviceptr {
    // SAFETY: the memory is as large as the numbers.
    unsafe {
        let to = result::malloc_async(stream, size_of_val(numbers)).expect("memory");
        result::memcpy_htod_async(to, numbers, stream).expect("a copy");
        to
    }
}

/// Waits for the stream, and reads this many numbers.
pub(crate) fn download<T: Copy + Default>(from: CUdeviceptr, count: usize, stream: CUstream) -> Vec<T> {
    let mut numbers = vec![T::default(); count];
    // SAFETY: the tests read only what they allocated.
    unsafe {
        result::memcpy_dtoh_async(&mut numbers[..], from, stream).expect("a copy");
        result::stream::synchronize(stream).expect("a stream");
    }
    numbers
}

/// The map of a tensor of bf16 numbers, swizzled by 128 bytes. Strides are in bytes.
pub(crate) fn tensor_map(
    start: CUdeviceptr,
    sizes: [u64; 4],
    strides: [u64; 3],
    sides: [u32; 4],
) -> Result<CUtensorMap, CUresult> {
    let mut map = CUtensorMap { opaque: [0; 16] };
    // SAFETY: the arrays are as long as the tensor has dimensions.
    let result = unsafe {
        sys::cuTensorMapEncodeTiled(
            &mut map,
            CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
            4,
            start as *mut c_void,
            sizes.as_ptr(),
            strides.as_ptr(),
            sides.as_ptr(),
            [1; 4].as_ptr(),
            CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
            CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
            CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
            CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
    };
    match result {
        CUresult::CUDA_SUCCESS => Ok(map),
        refused => Err(refused),
    }
}

/// Compiles `source` and finds the kernel `name`, on the current device.
pub(crate) fn kernel(source: &str, name: &str) -> CUfunction {
    let options = ["--gpu-architecture=sm_90a", "-default-device"];
    let image = compile(source, &options).unwrap_or_else(|log| panic!("{log}"));
    // SAFETY: the image is whole; the module stays loaded.
    unsafe {
        let module = result::module::load_data(image.as_ptr().cast()).expect("a module");
        result::module::get_function(module, CString::new(name).expect("a name")).expect("a kernel")
    }
}

/// The image of compiled `source`, or what the compiler says.
pub(crate) fn compile(source: &str, options: &[&str]) -> Result<Vec<u8>, String> {
    let source = CString::new(source).expect("no zero byte");
    let program = nvrtc::result::create_program(&source, None).expect("a program");
    // SAFETY: the program lives until the end of the function.
    unsafe {
        if nvrtc::result::compile_program(program, options).is_err() {
            let log = nvrtc::result::get_program_log(program).expect("a log");
            return Err(String::from_utf8(log.iter().map(|&c| c as u8).collect()).expect("text"));
        }
        let mut size = 0;
        nvrtc::sys::nvrtcGetCUBINSize(program, &mut size).result().expect("an image");
        let mut image = vec![0_u8; size];
        nvrtc::sys::nvrtcGetCUBIN(program, image.as_mut_ptr().cast()).result().expect("an image");
        nvrtc::result::destroy_program(program).expect("a program");
        Ok(image)
    }
}

/// NCCL's value for an option that is not set.
pub(crate) const UNSET: i32 = i32::MIN;

/// The settings of a communicator that blocks or not, and whose transfers take at most these blocks.
pub(crate) fn communicator(blocking: bool, most_blocks: i32) -> ncclConfig_t {
    ncclConfig_t {
        size: size_of::<ncclConfig_t>(),
        magic: 0xcafe_beef,
        version: 22809,
        blocking: i32::from(blocking),
        cgaClusterSize: UNSET,
        minCTAs: UNSET,
        maxCTAs: most_blocks,
        netName: null(),
        splitShare: UNSET,
        trafficClass: UNSET,
        commName: null(),
        collnetEnable: UNSET,
        CTAPolicy: UNSET,
        shrinkShare: UNSET,
        nvlsCTAs: UNSET,
        nChannelsPerNetPeer: UNSET,
        nvlinkCentricSched: UNSET,
    }
}
