//! The emulated CUDA follows CUDA's documentation, and reveals mistakes that a GPU may hide. One test fills
//! device 1, and one breaks device 3. All others of this program use device 0.

use std::ffi::c_void;

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys::{self, CUdeviceptr, CUfunction, CUresult, CUstream};

use crate::driver::{allocate, compile, enter, kernel, stream};

fn launch(
    kernel: CUfunction,
    grid: u32,
    block: u32,
    shared: u32,
    stream: CUstream,
    arguments: &mut [*mut c_void],
) -> Result<(), DriverError> {
    // SAFETY: each test passes the arguments of its kernel.
    unsafe { result::launch_kernel(kernel, (grid, 1, 1), (block, 1, 1), shared, stream, arguments) }
}

fn argument<T>(value: &mut T) -> *mut c_void {
    std::ptr::from_mut(value).cast()
}

fn upload(to: CUdeviceptr, from: &[f32], stream: CUstream) {
    // SAFETY: the tests allocate enough.
    unsafe { result::memcpy_htod_async(to, from, stream) }.expect("a copy");
}

/// Waits for `stream`, then reads.
fn download(from: CUdeviceptr, count: usize, stream: CUstream) -> Vec<f32> {
    let mut values = vec![0.0; count];
    // SAFETY: the tests read only what they allocated.
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
    if !enter(0) {
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

#[test]
fn there_is_as_much_memory_as_the_device_has() {
    if !enter(1) {
        return;
    }
    let stream = stream();
    let (free, total) = result::mem_get_info().expect("memory");
    assert_eq!((free, total), (1 << 30, 1 << 30));
    // SAFETY: the stream is alive.
    unsafe {
        let most = result::malloc_async(stream, total).expect("all of it");
        let more = result::malloc_async(stream, 1).expect_err("no more");
        assert_eq!(more.0, CUresult::CUDA_ERROR_OUT_OF_MEMORY);
        result::free_async(most, stream).expect("a block");
    }
}

#[test]
fn a_kernel_that_does_not_compile_says_where() {
    if !enter(0) {
        return;
    }
    let source = "extern \"C\" __global__ void wrong(float *x) {\n    *x = nothing;\n}\n";
    let log = compile(source, &[]).expect_err("there is no such name");
    assert!(log.contains("kernels.cu:2") && log.contains("nothing"), "{log}");
    let log = compile("", &["--no-such-option"]).expect_err("there is no such option");
    assert!(log.contains("--no-such-option"), "{log}");
}

#[test]
fn launches_beyond_the_limits_are_refused() {
    if !enter(0) {
        return;
    }
    let (sum, stream) = (kernel(SUM, "sum_f32"), stream());
    let refused = |block, shared| {
        let (mut x, mut n) = (0_u64, 0_u32);
        let mut y = x;
        let arguments = &mut [argument(&mut x), argument(&mut y), argument(&mut n)];
        launch(sum, 1, block, shared, stream, arguments).is_err()
    };
    assert!(refused(129, 512), "over the launch bounds");
    assert!(refused(128, (48 << 10) + 4), "more shared memory than is allowed without asking");
    let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    // SAFETY: the module of the function stays loaded.
    unsafe { result::function::set_function_attribute(sum, attribute, 100 << 10) }.expect("an attribute");
    assert!(!refused(128, 100 << 10));
}

const WRONG: &str = r#"
extern "C" __global__ void stuck(float *x) {
    if (threadIdx.x < 7) __syncthreads();
    else x[0] += __shfl_sync(0xffffffffu, x[0], 0);
}
"#;

#[test]
fn a_barrier_that_not_all_threads_reach_is_a_failed_launch() {
    if !enter(3) {
        return;
    }
    let (stuck, stream) = (kernel(WRONG, "stuck"), stream());
    let mut x = allocate(1, stream);
    launch(stuck, 1, 64, 0, stream, &mut [argument(&mut x)]).expect("a launch");
    // SAFETY: the stream is alive.
    let failed = unsafe { result::stream::synchronize(stream) }.expect_err("threads are stuck");
    assert_eq!(failed.0, CUresult::CUDA_ERROR_LAUNCH_FAILED);
    assert_eq!(result::mem_get_info().expect_err("for good").0, CUresult::CUDA_ERROR_LAUNCH_FAILED);
}
