//! What belongs together, and what a GPU demands of addresses and sizes.

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys::{self, CUfunction_attribute, CUresult};

use crate::machine::{Machine, allocate, copy, edge, event, fill, kernel, launch, stream, synchronize};

fn code(called: Result<(), DriverError>) -> CUresult {
    called.expect_err("the emulator refuses it").0
}

const FILL: &str = r#"extern "C" __global__ void one(float *x) { x[threadIdx.x] = 1.0f; }"#;

#[test]
fn an_event_is_recorded_on_a_stream_of_its_device() {
    let Some(machine) = Machine::alone() else { return };
    let (here, of_here) = (stream(), event());
    machine.enter(1);
    let (there, of_there) = (stream(), event());
    // SAFETY: all are alive.
    unsafe {
        let refused = result::event::record(of_here, there);
        assert_eq!(code(refused), CUresult::CUDA_ERROR_INVALID_HANDLE);
        result::event::record(of_there, there).expect("a record");
        // Another device's stream may wait for it.
        sys::cuStreamWaitEvent(here, of_there, 0).result().expect("a wait");
        result::event::record(of_here, here).expect("a record");
        synchronize(here);
        let refused = result::event::elapsed(of_there, of_here).map(|_| ());
        assert_eq!(code(refused), CUresult::CUDA_ERROR_INVALID_HANDLE);
    }
}

#[test]
fn a_kernel_its_stream_and_the_thread_are_of_one_device() {
    let Some(machine) = Machine::alone() else { return };
    let (one, here) = (kernel(FILL, "one"), stream());
    let x = allocate(4, here);
    machine.enter(1);
    let there = stream();
    let y = allocate(4, there);
    let wrong = CUresult::CUDA_ERROR_INVALID_HANDLE;
    assert_eq!(code(launch(one, 4, there, &mut [y])), wrong, "the kernel is of another");
    assert_eq!(code(launch(one, 4, here, &mut [x])), wrong, "the thread is at another");
    machine.enter(0);
    launch(one, 4, here, &mut [x]).expect("a launch");
    machine.assert_silent();
}

#[test]
fn a_handle_of_cublaslt_is_of_one_device() {
    use crate::product::{PLAIN, multiply, prepare};
    let Some(machine) = Machine::alone() else { return };
    machine.enter(1);
    let there = stream();
    let (_, buffers) = prepare(&PLAIN, there);
    multiply(&PLAIN, &buffers, there, 0).expect("queued");
    machine.enter(0);
    // `multiply` makes a handle of the current device.
    multiply(&PLAIN, &buffers, there, 0).expect_err("of another device");
    machine.enter(1);
    machine.assert_silent();
}

#[test]
fn a_device_uses_anothers_memory_only_where_it_has_access() {
    let Some(machine) = Machine::alone() else { return };
    machine.enter(3);
    let there = stream();
    let x = allocate(4, there);
    fill(x, 4, there);
    machine.enter(2);
    let here = stream();
    let y = allocate(4, here);
    edge(there, here, (&machine, 3));
    machine.enter(2);
    for access in [false, true] {
        if access {
            allow(3, 2);
        }
        copy(y, x, 4, here);
        synchronize(here);
        match access {
            true => machine.assert_silent(),
            false => machine.assert_complains(&["no access to another device", "on device 3", "of device 2"]),
        }
        machine.enter(2);
    }
}

/// Lets device `from` access the pool of device `pool`.
fn allow(pool: i32, from: i32) {
    let access = sys::CUmemAccessDesc {
        location: sys::CUmemLocation { type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: from },
        flags: sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    };
    let device = result::device::get(pool).expect("a device");
    // SAFETY: the device is there, and the pointer is to a local.
    unsafe {
        let pool = result::device::get_default_mem_pool(device).expect("a pool");
        sys::cuMemPoolSetAccess(pool, &access, 1).result().expect("access");
    }
}

/// The product's own loads for tensor cores, and kernels that misuse them.
const LOADS: &str = concat!(
    include_str!("../../src/cuda/kernels/prelude.cu"),
    include_str!("../../src/cuda/kernels/mma.cu"),
    r#"
extern "C" __global__ void rows(const float *offset) {
    unsigned words[4];
    ldmatrix_x4(words, (unsigned)offset[0] + threadIdx.x * 16);
}
extern "C" __global__ void columns(const float *offset) {
    unsigned words[4];
    ldmatrix_x4_trans(words, (unsigned)offset[0] + threadIdx.x * 16);
}
extern "C" __global__ void to_shared(const float *offset) {
    cp_async_16((unsigned)offset[0] + threadIdx.x * 16, offset, 16);
    cp_async_wait_all();
}
extern "C" __global__ void from_global(const float *offset) {
    cp_async_16(threadIdx.x * 16, (const char *)offset + (unsigned)offset[0], 16);
    cp_async_wait_all();
}
extern "C" __global__ void small(const float *offset) {
    cp_async_4(threadIdx.x * 4 + (unsigned)offset[0] / 4, offset, 4);
    cp_async_wait_all();
}
"#
);

#[test]
fn addresses_for_tensor_cores_are_aligned() {
    let Some(machine) = Machine::alone() else { return };
    for name in ["rows", "columns", "to_shared", "from_global", "small"] {
        let wrong = kernel(LOADS, name);
        for (offset, right) in [(0.0_f32, true), (8.0, false)] {
            let first = stream();
            let x = allocate(64, first);
            // SAFETY: there is room.
            unsafe { result::memcpy_htod_async(x, &[offset], first) }.expect("a copy");
            launch(wrong, 32, first, &mut [x]).expect("a launch");
            // SAFETY: the stream is alive.
            let ended = unsafe { result::stream::synchronize(first) };
            match right {
                true => ended.expect("aligned"),
                false => assert_eq!(code(ended), CUresult::CUDA_ERROR_LAUNCH_FAILED, "{name}"),
            }
            machine.assert_silent();
        }
    }
}

const SHARED: &str = r#"
template <unsigned N> __device__ void used(float *x) {
    __shared__ float first[N], second[16][N / 16];
    first[threadIdx.x] = x[threadIdx.x];
    second[0][threadIdx.x] = first[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = second[0][threadIdx.x];
}
extern "C" __global__ void fits(float *x) { used<6144>(x); }
extern "C" __global__ void too_much(float *x) { used<6160>(x); }
"#;

#[test]
fn static_shared_memory_has_a_limit() {
    let Some(machine) = Machine::alone() else { return };
    for (name, right) in [("fits", true), ("too_much", false)] {
        let (wrong, first) = (kernel(SHARED, name), stream());
        let x = allocate(4, first);
        fill(x, 4, first);
        launch(wrong, 4, first, &mut [x]).expect("a launch");
        // SAFETY: the stream is alive.
        let ended = unsafe { result::stream::synchronize(first) };
        assert_eq!(ended.is_ok(), right, "{name}");
        machine.assert_silent();
    }
}

#[test]
fn static_and_dynamic_shared_memory_have_a_limit_together() {
    let Some(machine) = Machine::alone() else { return };
    let (fits, first) = (kernel(SHARED, "fits"), stream());
    let attribute = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    let most = 227 << 10;
    // SAFETY: the module of the function stays loaded.
    unsafe { result::function::set_function_attribute(fits, attribute, most) }.expect("an attribute");
    for (dynamic, right) in [(most - (48 << 10), true), (most, false)] {
        let mut x = allocate(4, first);
        fill(x, 4, first);
        let arguments = &mut [std::ptr::from_mut(&mut x).cast()];
        // SAFETY: these are the kernel's arguments.
        unsafe { result::launch_kernel(fits, (1, 1, 1), (4, 1, 1), dynamic as u32, first, arguments) }
            .expect("a launch");
        // SAFETY: the stream is alive.
        assert_eq!(unsafe { result::stream::synchronize(first) }.is_ok(), right);
        machine.assert_silent();
    }
}
