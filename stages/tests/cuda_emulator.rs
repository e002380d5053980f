//! The emulated CUDA does what CUDA's documentation says, and shows mistakes that a GPU may hide.
//! (Left out on a machine with a GPU: these tests are about the emulator.)

#![allow(unsafe_code)]

mod emulator;

use std::ffi::{CString, c_void};
use std::ptr::null_mut;

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys::{self, CUdeviceptr, CUevent, CUfunction, CUresult, CUstream};
use cudarc::nvrtc;
use emulator::Cuda;

/// Enters a device of the emulator, or says that there is none.
fn device(index: i32) -> bool {
    if !matches!(emulator::start(), Cuda::Emulated(_)) {
        return false;
    }
    result::init().expect("the emulator");
    let device = result::device::get(index).expect("a device");
    // SAFETY: the device is there, and the context is never released.
    unsafe { result::ctx::set_current(result::primary_ctx::retain(device).expect("a context")) }
        .expect("a context");
    true
}

fn stream() -> CUstream {
    let mut stream = null_mut();
    // SAFETY: a local's address.
    let code = unsafe { sys::cuStreamCreate(&mut stream, 1) };
    code.result().expect("a stream");
    stream
}

fn event() -> CUevent {
    result::event::create(sys::CUevent_flags::CU_EVENT_DEFAULT).expect("an event")
}

/// Compiles `source` and finds the kernel `name`.
fn kernel(source: &str, name: &str) -> CUfunction {
    let image = compile(source, &["--gpu-architecture=sm_90a"]).unwrap_or_else(|log| panic!("{log}"));
    // SAFETY: the image is whole; the module stays loaded.
    unsafe {
        let module = result::module::load_data(image.as_ptr().cast()).expect("a module");
        result::module::get_function(module, CString::new(name).expect("a name")).expect("a kernel")
    }
}

fn compile(source: &str, options: &[&str]) -> Result<Vec<u8>, String> {
    let source = CString::new(source).expect("no zero byte");
    let program = nvrtc::result::create_program(&source, None).expect("a program");
    // SAFETY: the program lives until the end of the function.
    unsafe {
        if nvrtc::result::compile_program(program, options).is_err() {
            let log = nvrtc::result::get_program_log(program).expect("a log");
            return Err(String::from_utf8(log.iter().map(|&c| c as u8).collect()).expect("text"));
        }
        let mut size = 0;
        nvrtc::sys::nvrtcGetCUBINSize(program, &mut size)
            .result()
            .expect("an image");
        let mut image = vec![0_u8; size];
        nvrtc::sys::nvrtcGetCUBIN(program, image.as_mut_ptr().cast())
            .result()
            .expect("an image");
        nvrtc::result::destroy_program(program).expect("a program");
        Ok(image)
    }
}

fn launch(
    kernel: CUfunction,
    grid: u32,
    block: u32,
    shared: u32,
    stream: CUstream,
    arguments: &mut [*mut c_void],
) -> Result<(), DriverError> {
    // SAFETY: each test gives what its kernel takes.
    unsafe { result::launch_kernel(kernel, (grid, 1, 1), (block, 1, 1), shared, stream, arguments) }
}

fn argument<T>(value: &mut T) -> *mut c_void {
    std::ptr::from_mut(value).cast()
}

fn allocate(count: usize, stream: CUstream) -> CUdeviceptr {
    // SAFETY: the stream is alive.
    unsafe { result::malloc_async(stream, count * 4) }.expect("memory")
}

fn upload(to: CUdeviceptr, from: &[f32], stream: CUstream) {
    // SAFETY: tests give room enough.
    unsafe { result::memcpy_htod_async(to, from, stream) }.expect("a copy");
}

/// Waits for `stream` and reads.
fn download(from: CUdeviceptr, count: usize, stream: CUstream) -> Vec<f32> {
    let mut values = vec![0.0; count];
    // SAFETY: tests ask for what they allocated.
    unsafe { result::memcpy_dtoh_async(&mut values[..], from, stream) }.expect("a copy");
    values
}

const SUM: &str = r#"
#define SUM(T, name)                                                                     \
    extern "C" __global__ void __launch_bounds__(128) name(const T *x, T *sum, unsigned n) { \
        extern __shared__ __align__(16) unsigned char raw[];                             \
        __shared__ T parts[4];                                                           \
        T *mine = (T *)raw;                                                              \
        unsigned i = blockIdx.x * blockDim.x + threadIdx.x;                              \
        mine[threadIdx.x] = i < n ? x[i] : T(0);                                         \
        __syncthreads();                                                                 \
        T value = mine[blockDim.x - 1 - threadIdx.x];                                    \
        for (int step = 16; step > 0; step /= 2) value += __shfl_down_sync(0xffffffffu, value, step); \
        if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;                      \
        __syncthreads();                                                                 \
        if (threadIdx.x > 0) return;                                                     \
        sum[blockIdx.x] = parts[0] + parts[1] + parts[2] + parts[3];                     \
    }
SUM(float, sum_f32)
SUM(double, sum_f64)
extern "C" __global__ void add(float *x, float by) { x[threadIdx.x] += by; }
"#;

#[test]
fn a_kernel_has_barriers_shuffles_and_shared_memory() {
    if !device(0) {
        return;
    }
    let (sum, stream) = (kernel(SUM, "sum_f32"), stream());
    let values: Vec<f32> = (0..250).map(|i| i as f32).collect();
    let (mut x, mut sums, mut n) = (allocate(250, stream), allocate(2, stream), 250_u32);
    upload(x, &values, stream);
    let arguments = &mut [argument(&mut x), argument(&mut sums), argument(&mut n)];
    launch(sum, 2, 128, 512, stream, arguments).expect("a launch");
    assert_eq!(download(sums, 2, stream), [8128.0, 22997.0]);
}
