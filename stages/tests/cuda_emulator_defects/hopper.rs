//! What the instructions of Hopper demand, and what goes wrong if a kernel does not wait for them. Defect 0
//! of each kernel is none.

use std::ffi::c_void;
use std::ptr::from_mut;

use cudarc::driver::result;
use cudarc::driver::sys::{CUdeviceptr, CUresult, CUtensorMap};
use emulator::answer;

use crate::addresses::{ADDRESSES, watched};
use crate::driver::{compile, download, tensor_map, upload};
use crate::machine::{Machine, allocate, fill, kernel, stream};

/// Waits for what the device has to do.
fn wait() {
    result::ctx::synchronize().expect("the device");
}

/// Launches one block with 40 KiB of shared memory. What it says if it fails.
fn run<A>(machine: &Machine, name: &str, with: A, threads: u32) -> String {
    let (mut with, here) = (with, stream());
    let arguments: &mut [*mut c_void] = &mut [from_mut(&mut with).cast()];
    let kernel = kernel(KERNELS, name);
    answer("pw_failed_launch");
    // SAFETY: this is the kernel's argument.
    unsafe { result::launch_kernel(kernel, (1, 1, 1), (threads, 1, 1), 40 << 10, here, arguments) }
        .expect("a launch");
    // SAFETY: the stream is alive.
    let ended = unsafe { result::stream::synchronize(here) };
    let why = answer("pw_failed_launch");
    assert_eq!(ended.is_ok(), why.is_empty(), "{why}");
    machine.assert_silent();
    why
}

/// Runs a kernel with each of its defects, and looks for the words.
fn find<A>(name: &str, threads: u32, with: impl Fn(u32) -> A, defects: &[&[&str]]) {
    let Some(machine) = Machine::alone() else { return };
    for (defect, words) in defects.iter().enumerate() {
        let why = run(&machine, name, with(defect as u32), threads);
        assert_eq!(why.is_empty(), words.is_empty(), "defect {defect} of {name}: {why}");
        for word in *words {
            assert!(why.contains(word), "defect {defect} of {name}: no {word:?} in {why:?}");
        }
    }
}

const KERNELS: &str = r#"
typedef unsigned long long u64;
extern __shared__ __align__(1024) unsigned char shared[];
const unsigned RIGHT = 8192, BARRIER = 32768;
// Rows of 64 numbers, swizzled.
__device__ u64 matrix(unsigned at) { return at >> 4 | (u64)1 << 16 | (u64)64 << 32 | (u64)1 << 62; }
__device__ void zeros() {
    for (unsigned i = threadIdx.x; i < BARRIER / 4; i += blockDim.x) ((unsigned *)shared)[i] = 0;
    shared_fence();
    __syncthreads();
}

extern "C" __global__ void fences(unsigned defect) {
    zeros();
    float sum[32], other[32];
    unsigned left[4] = {};
    for (float &x : sum) x = 1.0f;
    if (defect != 1) wgmma_fence();
    wgmma<64, false>(sum, matrix(0), matrix(RIGHT), true);
    wgmma<64, false>(sum, left, matrix(RIGHT), true);
    wgmma_commit();
    if (defect == 2) left[1] = 3;
    if (defect == 3) sum[5] = 0.0f;
    wgmma_wait<0>();
    // Nobody has used the registers, so no fence is needed.
    wgmma<64, false>(sum, left, matrix(RIGHT), true);
    wgmma_commit();
    wgmma_wait<0>();
    if (defect == 4) sum[5] *= 2.0f;
    if (defect == 5) left[1] = threadIdx.x;
    if (defect == 6) wgmma<64, false>(sum, left, matrix(RIGHT), false);
    sum[6] *= 2.0f, left[2] = threadIdx.x;
    if (defect == 0) wgmma_fence();
    else sum[6] *= 0.5f, left[2] = 0;
    wgmma<64, false>(sum, left, matrix(RIGHT), true);
    if (defect == 7) wgmma<32, false>((float (&)[16])sum, left, matrix(RIGHT), true);
    wgmma_commit();
    if (defect != 8) wgmma_wait<0>();
    if (defect == 9) wgmma_fence(), wgmma<64, false>(other, left, matrix(RIGHT), false), wgmma_wait<0>();
    if (defect == 10) wgmma<64, false>(*(float (*)[32])shared, left, matrix(RIGHT), false);
}

extern "C" __global__ void together(unsigned defect) {
    zeros();
    float sum[32];
    const unsigned warp = threadIdx.x / 32;
    if (defect == 1 && threadIdx.x == 70) return;
    if (defect == 2 && warp == 2) return;
    if (defect == 3 && threadIdx.x == 70) __syncthreads();
    if (defect == 4 && warp == 3) registers_more<160>();
    else registers_more<152>();
    wgmma_fence();
    wgmma<64, false>(sum, matrix(0), matrix(RIGHT) + (defect == 5 ? warp * 64 : 0), false);
    if (defect == 6) wgmma<64, false>(sum, matrix(0), matrix(RIGHT), threadIdx.x % 2);
    wgmma_commit();
    wgmma_wait<0>();
}

extern "C" __global__ void descriptors(unsigned defect) {
    zeros();
    float sum[64];
    const u64 left = matrix(0), right = matrix(RIGHT), at = (u64)1 << 14;
    const u64 lefts[] = {left + 6, left | at, left | (u64)1 << 49, left + 7, left + 8, left - ((u64)1 << 32),
                         matrix(40 << 10), left};
    wgmma_fence();
    wgmma<128, false>(sum, lefts[defect], defect == 7 ? matrix(39 << 10) : right, false);
    wgmma_commit();
    wgmma_wait<0>();
    // Along the columns. Two patterns of 64 columns.
    const u64 wide = right - ((u64)1 << 16) + ((u64)128 << 16);
    wgmma_fence();
    wgmma<128, true>(sum, left, defect == 8 ? right : defect == 9 ? wide + 1 : wide, false);
    wgmma_commit();
    wgmma_wait<0>();
}

extern "C" __global__ void changed(unsigned defect) {
    zeros();
    float sum[32];
    wgmma_fence();
    wgmma<64, false>(sum, matrix(0), matrix(RIGHT), false);
    wgmma_commit();
    // Row 1 of the left matrix, and a column of the right one.
    if (defect == 1 && threadIdx.x == 0) *(unsigned short *)(shared + 128 + 16) = 0x3f80;
    if (defect == 2 && threadIdx.x == 0) *(unsigned short *)(shared + RIGHT + 63 * 128 + 112) = 0x3f80;
    shared_fence();
    __syncthreads();
    wgmma_wait<0>();
}

extern "C" __global__ void early(float *seen) {
    zeros();
    float sum[32];
    wgmma_fence();
    wgmma<64, false>(sum, matrix(0), matrix(RIGHT), false);
    seen[threadIdx.x] = sum[7];
    wgmma_commit();
    wgmma<64, false>(sum, matrix(0), matrix(RIGHT), true);
    wgmma_commit();
    wgmma_wait<1>();
    // The accumulators are those of the second product, too.
    seen[128 + threadIdx.x] = sum[7];
    wgmma_wait<0>();
    seen[256 + threadIdx.x] = sum[7];
}

extern "C" __global__ void stores(unsigned defect) {
    zeros();
    float sum[32];
    if (defect < 3) ((float *)shared)[threadIdx.x] = 0.0f;
    if (defect == 0) shared_fence();
    __syncthreads();
    if (defect == 1) shared_fence();
    wgmma_fence();
    wgmma<64, false>(sum, matrix(0), matrix(RIGHT), false);
    wgmma_commit();
    wgmma_wait<0>();
}

extern "C" __global__ void names(unsigned defect) {
    const unsigned warp = threadIdx.x / 32;
    // Two warps go on, one of them twice, as soon as the others have been here.
    for (unsigned i = 0; i < 3; i++) {
        if (warp < 2) named_barrier(1, defect == 1 && warp == 1 ? 64 : 128);
        else if (defect != 2 || i < 2) named_arrive(1, 128);
        if (warp < 2) named_arrive(2, 128);
        else named_barrier(2, 128);
    }
    if (defect == 3 && warp == 0) named_barrier(3, 64);
    if (defect == 4) named_barrier(3, 100);
    if (defect == 5) named_barrier(0, 128);
    if (defect == 6) named_barrier(3 + threadIdx.x % 2, 128);
    if (defect == 7 && warp == 3) named_arrive(3, 128), named_arrive(3, 128);
    if (defect == 8 && threadIdx.x % 2) named_arrive(3, 128);
    if (defect == 8) __shfl_sync(0xffffffffu, 1.0, 0);
}

struct Loads {
    TensorMap map;
    float *seen;
    u64 defect, none[6];
};
extern "C" __global__ void loads(const __grid_constant__ Loads with) {
    const unsigned defect = with.defect, bytes = 8192;
    const bool first = threadIdx.x == 0;
    if (first && defect != 1) barrier_init(BARRIER, defect == 2 ? 2 : 1);
    if (first && defect != 3) barrier_init_fence();
    __syncthreads();
    if (first) {
        barrier_expect(BARRIER, defect == 4 ? bytes + 16 : bytes);
        if (defect == 5) barrier_arrive(BARRIER);
        const unsigned places[] = {64, 128, 36864, 28672};
        const unsigned to = defect > 5 && defect < 10 ? places[defect - 6] : 0;
        tensor_load(to, with.map, defect == 10 ? BARRIER + 8 : BARRIER, 0, 0, 0, 0);
        if (defect == 11) tensor_load(4096, with.map, BARRIER, 0, 0, 0, 0);
    }
    if (defect == 12) return;
    __syncthreads();
    if (defect == 13) with.seen[threadIdx.x] = ((float *)shared)[threadIdx.x];
    barrier_wait(BARRIER, defect == 14);
    if (defect == 0) with.seen[threadIdx.x] = ((float *)shared)[threadIdx.x];
    if (defect < 15) barrier_wait(BARRIER, 0);
    __syncthreads();
    if (defect == 16 && first) barrier_init(BARRIER, 1);
    if (defect == 17 && first) barrier_arrive(BARRIER), barrier_arrive(BARRIER);
    if (defect == 18) barrier_wait(BARRIER, 1);
    if (defect == 19 && first) tensor_prefetch(*(const TensorMap *)shared);
    if (defect == 20 && first) barrier_init(BARRIER + 20, 1);
    if (defect == 21 && first) barrier_expect(BARRIER, 1 << 20);
}
"#;

#[test]
fn registers_of_a_product_are_fenced_and_left_alone() {
    let defects: [&[&str]; 11] = [
        &[],
        &["no wgmma_fence before the first"],
        &["lane", "changed its registers of the left matrix", "before the wait"],
        &["lane", "changed accumulators", "before the wait"],
        &["no wgmma_fence after lane", "the accumulators"],
        &["no wgmma_fence after lane", "the left matrix"],
        &["no wgmma_fence after its accumulators came back"],
        &["those of another shape"],
        &["has not waited for all its wgmma"],
        &["has not waited for all its wgmma"],
        &["its accumulators are no local variable"],
    ];
    find("fences", 128, |defect| defect, &defects);
}

#[test]
fn a_warpgroup_executes_the_same() {
    let defects: [&[&str]; 7] = [
        &[],
        &["registers_more: lane 6 of warp 2 has returned"],
        &["warp 2 executes 0 instructions of its warpgroup, another warp 5"],
        &["for ever", "64..69 at registers_more; 70..70 at a barrier; 71..95 at registers_more"],
        &["registers_more 160", "registers_more 152"],
        &["executes wgmma of 64 columns, left", "and another warp of its warpgroup wgmma"],
        &["threads of warp", "adding"],
    ];
    find("together", 128, |defect| defect, &defects);
    let Some(machine) = Machine::alone() else { return };
    let why = run(&machine, "together", 0, 96);
    assert!(why.contains("a block of 96 threads is no whole warpgroups"), "{why}");
}

#[test]
fn a_descriptor_that_cannot_be_right_is_refused() {
    let pattern = "its pattern does not begin at a multiple of 1024 bytes, or its row has no 32 bytes more";
    let defects: [&[&str]; 10] = [
        &[],
        &["the left matrix has bits without a meaning"],
        &["the left matrix has a base offset"],
        &["start 112 of the left matrix", pattern],
        &["start 128 of the left matrix", pattern],
        &["the stride dimension byte offset 1008 of the left matrix is not a multiple of its pattern's 1024"],
        &["the left matrix: bytes", "of dynamic shared memory, which has 40960"],
        &["the right matrix: bytes", "of dynamic shared memory, which has 40960"],
        &["the leading dimension byte offset 16 of the right matrix"],
        &["start 8208 of the right matrix"],
    ];
    find("descriptors", 128, |defect| defect, &defects);
}

#[test]
fn shared_memory_that_a_product_reads_is_left_alone() {
    let defects: [&[&str]; 3] = [
        &[],
        &["the left matrix of a wgmma changed in shared memory before the wait"],
        &["the right matrix of a wgmma changed in shared memory before the wait"],
    ];
    find("changed", 128, |defect| defect, &defects);
}

#[test]
fn a_sum_that_nobody_has_waited_for_is_nan() {
    let Some(machine) = Machine::alone() else { return };
    let seen = allocate(384, stream());
    wait();
    assert_eq!(run(&machine, "early", seen, 128), "");
    let seen: Vec<f32> = download(seen, 384, stream());
    assert!(seen[..256].iter().all(|x| x.is_nan()));
    assert!(seen[256..].iter().all(|&x| x == 0.0));
}

#[test]
fn stores_to_shared_memory_are_fenced() {
    if Machine::alone().is_none() || !watched("hopper::stores_to_shared_memory_are_fenced") {
        return;
    }
    let missing = "wrote bytes at 0 of shared memory, and no shared_fence came since";
    find("stores", 128, |defect| defect, &[&[], &[], &["the left matrix: thread 0", missing], &[]]);
}

#[test]
fn numbers_of_registers_and_columns_are_those_of_the_instructions() {
    if Machine::alone().is_none() {
        return;
    }
    for (call, why) in [
        ("registers_more<20>()", "setmaxnreg takes multiples of 8 from 24 to 256"),
        ("registers_fewer<100>()", "setmaxnreg takes multiples of 8 from 24 to 256"),
        ("float x[6]; wgmma<12, false>(x, 0, 0, true)", "wgmma takes multiples of 8 columns"),
    ] {
        let source = format!("extern \"C\" __global__ void wrong() {{ {call}; }}");
        let log = compile(&source, &[]).expect_err("there is no such instruction");
        assert!(log.contains(why), "{log}");
    }
}

#[test]
fn warps_meet_at_a_barrier_with_a_number() {
    let defects: [&[&str]; 9] = [
        &[],
        &["named barrier 1: 64 threads, and others say 128"],
        &["for ever", "0..63 at named barrier 1"],
        &["for ever: 0..31 at named barrier 3, where 32 of 64 threads are"],
        &["named barrier 3: 100 threads, of 128"],
        &["named barrier 0: 1 to 15 are free"],
        &["threads of a warp are at named barriers"],
        &["named barrier 3: warp 3 arrives twice in a turn"],
        &["for ever", "1..1 at a named barrier, with its warp; 2..2 at a warp operation"],
    ];
    find("names", 128, |defect| defect, &defects);
}

/// Without gaps, because what is in them may look like an address.
#[repr(C)]
struct Loads {
    map: CUtensorMap,
    seen: CUdeviceptr,
    defect: u64,
    none: [u64; 6],
}

impl Loads {
    fn new(map: CUtensorMap, seen: CUdeviceptr, defect: u32) -> Self {
        Self { map, seen, defect: defect.into(), none: [0; 6] }
    }
}

/// 32 rows of 64 numbers that are 1, of which a load takes two times 32.
fn ones() -> (CUdeviceptr, CUtensorMap) {
    let numbers = upload(&[0x3f80_3f80_u32; 2 * 32 * 32], stream());
    (numbers, tensor_map(numbers, [64, 32, 2, 1], [128, 4096, 8192], [64, 32, 2, 1]).expect("a map"))
}

#[test]
fn loads_and_barriers_are_used_as_they_must_be() {
    let Some(machine) = Machine::alone() else { return };
    let (_, map) = ones();
    drop(machine);
    let with = |defect| {
        let seen = allocate(64, stream());
        wait();
        Loads::new(map, seen, defect)
    };
    let defects: [&[&str]; 22] = [
        &[],
        &["there is no barrier at 32768"],
        &["for ever: 0..63 at the barrier at 32768 for phase 0, to which 1 arrivals and 0 bytes are to come"],
        &["no barrier_init_fence after the init of the barrier at 32768"],
        &[
            "for ever: 0..63 at the barrier at 32768 for phase 0",
            "to which 0 arrivals and 16 bytes are to come",
        ],
        &["more than 1 arrivals at the barrier at 32768 in phase 0"],
        &["tensor_load: 64 is not a multiple of 128"],
        &["tensor_load: 128 is not a multiple of 1024, where the swizzle's pattern begins"],
        &["tensor_load: bytes 36864 to 45056 of dynamic shared memory, which has 40960"],
        &["the barrier at 32768 was written over"],
        &["tensor_load: there is no barrier at 32776"],
        &["tensor_load to 4096: nobody has waited for the load to 0 before it"],
        &["nobody has waited at the barrier at 32768 for its loads"],
        &[],
        &[],
        &[],
        &["there is a barrier at 32768 already"],
        &["an arrival at the barrier at 32768 in phase 2, before any thread has waited for phase 1"],
        &["for ever", "phase 1, to which 1 arrivals"],
        &["this is no map that cuTensorMapEncodeTiled made"],
        &["barrier_init: 32788 is not a multiple of 8"],
        &["the barrier at 32768 expects 1048576 bytes, at most 1048575"],
    ];
    find("loads", 64, with, &defects);
}

#[test]
fn bytes_that_nobody_has_waited_for_are_nan() {
    let Some(machine) = Machine::alone() else { return };
    let ((_, map), seen) = (ones(), allocate(64, stream()));
    wait();
    for (defect, early) in [(0, false), (13, true)] {
        assert_eq!(run(&machine, "loads", Loads::new(map, seen, defect), 64), "");
        let seen: Vec<f32> = download(seen, 64, stream());
        assert!(seen.iter().all(|x| x.is_nan() == early && (early || x.to_bits() == 0x3f80_3f80)));
    }
}

#[test]
fn a_map_is_refused_as_by_the_driver() {
    let Some(machine) = Machine::alone() else { return };
    let start = allocate(4096, stream());
    let (sizes, strides, sides) = ([64, 8, 2, 2], [128, 1024, 2048], [64, 8, 1, 1]);
    let code = |start, sizes, strides, sides| tensor_map(start, sizes, strides, sides).err();
    assert_eq!(code(start, sizes, strides, sides), None);
    let wrong = [
        code(start + 8, sizes, strides, sides),
        code(start, [64, 0, 2, 2], strides, sides),
        code(start, sizes, [136, 1024, 2048], sides),
        code(start, sizes, [128, 1 << 40, 2048], sides),
        code(start, sizes, strides, [128, 8, 1, 1]),
        code(start, sizes, strides, [60, 8, 1, 1]),
        code(start, sizes, strides, [64, 257, 1, 1]),
        code(start, sizes, strides, [64, 8, 0, 1]),
    ];
    assert_eq!(wrong, [Some(CUresult::CUDA_ERROR_INVALID_VALUE); 8]);
    machine.assert_silent();
}

/// A load of the first half of a tensor, and then a write of a half on another stream.
fn write_beside_a_load(machine: &Machine, second_half: bool) {
    let ((numbers, _), seen, here, there) = (ones(), allocate(64, stream()), stream(), stream());
    wait();
    let map = tensor_map(numbers, [64, 64, 1, 1], [128, 8192, 8192], [64, 32, 2, 1]).expect("a map");
    let mut with = Loads::new(map, seen, 0);
    let arguments: &mut [*mut c_void] = &mut [from_mut(&mut with).cast()];
    // SAFETY: this is the kernel's argument.
    unsafe {
        result::launch_kernel(kernel(KERNELS, "loads"), (1, 1, 1), (64, 1, 1), 40 << 10, here, arguments)
    }
    .expect("a launch");
    fill(numbers + if second_half { 4096 } else { 0 }, 1024, there);
    match second_half && std::env::var_os(ADDRESSES).is_some() {
        true => machine.assert_silent(),
        false => machine.assert_complains(&["race", "`loads`", "which reads its bytes 0 to"]),
    }
}

#[test]
fn a_launch_reads_all_of_the_tensor_of_a_map() {
    let Some(machine) = Machine::alone() else { return };
    for second_half in [false, true] {
        write_beside_a_load(&machine, second_half);
    }
}

#[test]
fn a_launch_that_tells_its_addresses_reads_only_the_boxes() {
    let Some(machine) = Machine::alone() else { return };
    if !watched("hopper::a_launch_that_tells_its_addresses_reads_only_the_boxes") {
        return;
    }
    for second_half in [false, true] {
        write_beside_a_load(&machine, second_half);
    }
}
