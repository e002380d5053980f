//! The instructions of Hopper against plain loops. Where numbers are in shared memory is written down here
//! from the tables of NVIDIA's manual (PTX ISA, "Swizzling Modes" and "Canonical Layouts").

use std::ffi::c_void;
use std::ptr::from_mut;

use cudarc::driver::result;
use cudarc::driver::sys::{CUdeviceptr, CUfunction_attribute};

use crate::driver::{allocate, download, enter, kernel, stream, tensor_map, upload};

/// Which 16 bytes are in each place of a line of 128 bytes, line by line; then it repeats.
const SWIZZLES: [&[[usize; 8]]; 4] = [
    &[[0, 1, 2, 3, 4, 5, 6, 7]],
    &[[0, 1, 2, 3, 4, 5, 6, 7], [1, 0, 3, 2, 5, 4, 7, 6]],
    &[[0, 1, 2, 3, 4, 5, 6, 7], [1, 0, 3, 2, 5, 4, 7, 6], [2, 3, 0, 1, 6, 7, 4, 5], [3, 2, 1, 0, 7, 6, 5, 4]],
    &[
        [0, 1, 2, 3, 4, 5, 6, 7],
        [1, 0, 3, 2, 5, 4, 7, 6],
        [2, 3, 0, 1, 6, 7, 4, 5],
        [3, 2, 1, 0, 7, 6, 5, 4],
        [4, 5, 6, 7, 0, 1, 2, 3],
        [5, 4, 7, 6, 1, 0, 3, 2],
        [6, 7, 4, 5, 2, 3, 0, 1],
        [7, 6, 5, 4, 3, 2, 1, 0],
    ],
];

/// Where a byte of a swizzled layout is.
fn swizzled(byte: usize, swizzle: usize) -> usize {
    let lines = SWIZZLES[swizzle];
    let line = lines[byte / 128 % lines.len()];
    let place = line.iter().position(|&chunk| chunk == byte / 16 % 8).expect("all are there");
    byte / 128 * 128 + place * 16 + byte % 16
}

/// How a matrix of `rows` by K numbers is in shared memory, from byte `start` on.
#[derive(Clone, Copy)]
struct Layout {
    start: usize,
    rows: usize,
    /// 0 to 3: rows of 16 bytes, which are not swizzled, or swizzled rows of 32, 64 or 128.
    swizzle: usize,
    /// Whether neighbours in memory are neighbours along K.
    along_k: bool,
}

/// The inner dimension of the test's products.
const K: usize = 64;

impl Layout {
    /// The bytes of a row, and of its pattern of eight rows.
    fn row(self) -> usize {
        16 << self.swizzle
    }

    fn pattern(self) -> usize {
        8 * self.row()
    }

    /// The byte of a number, before the swizzle: patterns one after the other, first those across the rows.
    fn byte(self, row: usize, k: usize) -> usize {
        let (inner, outer, outers) = if self.along_k { (k, row, self.rows) } else { (row, k, K) };
        let numbers = self.row() / 2;
        let pattern = inner / numbers * (outers / 8) + outer / 8;
        self.start + pattern * self.pattern() + outer % 8 * self.row() + inner % numbers * 2
    }

    /// The descriptor of 16 columns of K. The fields are in units of 16 bytes.
    fn descriptor(self, step: usize) -> u64 {
        let across = if self.along_k { self.rows } else { K } / 8 * self.pattern();
        let (leading, stride) = match (self.swizzle, self.along_k) {
            (0, true) => (across, self.pattern()),
            (0, false) => (self.pattern(), across),
            (_, true) => (16, self.pattern()),
            (_, false) => (across, self.pattern()),
        };
        let mode = [0, 3, 2, 1][self.swizzle];
        let field = |bytes: usize| bytes as u64 / 16;
        field(self.byte(0, 16 * step)) | field(leading) << 16 | field(stride) << 32 | mode << 62
    }
}

/// Numbers that are exact in bf16, and whose products have exact sums.
struct Numbers(u32);

impl Numbers {
    fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        ((self.0 >> 24) as f32 - 128.0) / 16.0
    }

    fn matrix(&mut self, rows: usize) -> Vec<f32> {
        (0..rows * K).map(|_| self.next()).collect()
    }
}

fn bf16(x: f32) -> u16 {
    (x.to_bits() >> 16) as u16
}

/// Two numbers of a row of the left matrix in each word: what a thread has of 16 columns.
fn fragment(left: &[f32], thread: usize, step: usize) -> [u32; 4] {
    let (warp, lane) = (thread / 32, thread % 32);
    [0, 1, 2, 3].map(|i| {
        let row = 16 * warp + lane / 4 + 8 * (i % 2);
        let k = 16 * step + lane % 4 * 2 + 8 * (i / 2);
        u32::from(bf16(left[row * K + k])) | u32::from(bf16(left[row * K + k + 1])) << 16
    })
}

/// The row and the column of accumulator `i` of a thread.
fn place(thread: usize, i: usize) -> (usize, usize) {
    let (warp, lane) = (thread / 32, thread % 32);
    (16 * warp + lane / 4 + 8 * (i / 2 % 2), i / 4 * 8 + lane % 4 * 2 + i % 2)
}

const PRODUCTS: &str = r#"
typedef unsigned long long u64;
struct Arguments {
    const uint4 *image;
    u64 quads;
    const unsigned *fragments;
    u64 left[4], right[4];
    float *sum;
};
template <unsigned N, bool TRANSPOSED, bool REGISTERS> __device__ void product(const Arguments &with) {
    extern __shared__ __align__(1024) unsigned char shared[];
    for (unsigned i = threadIdx.x; i < with.quads; i += 128) ((uint4 *)shared)[i] = with.image[i];
    shared_fence();
    __syncthreads();
    float sum[N / 2];
    unsigned left[4][4];
    for (unsigned i = 0; i < 16; i++) left[i / 4][i % 4] = with.fragments[threadIdx.x * 16 + i];
    wgmma_fence();
    for (unsigned step = 0; step < 4; step++)
        if (REGISTERS) wgmma<N, TRANSPOSED>(sum, left[step], with.right[step], step > 0);
        else wgmma<N, TRANSPOSED>(sum, with.left[step], with.right[step], step > 0);
    wgmma_commit();
    wgmma_wait<0>();
    for (unsigned i = 0; i < N / 2; i++) with.sum[threadIdx.x * N / 2 + i] = sum[i];
}
#define PRODUCT(n, t, r) \
    extern "C" __global__ void product_##n##_##t##_##r(const Arguments with) { product<n, t, r>(with); }
PRODUCT(64, false, false) PRODUCT(64, false, true) PRODUCT(64, true, false) PRODUCT(64, true, true)
PRODUCT(128, false, false) PRODUCT(128, false, true) PRODUCT(128, true, false) PRODUCT(128, true, true)
PRODUCT(24, false, false) PRODUCT(24, false, true)
"#;

/// Without gaps, because what is in them may look like an address.
#[repr(C)]
struct Arguments {
    image: CUdeviceptr,
    quads: u64,
    fragments: CUdeviceptr,
    left: [u64; 4],
    right: [u64; 4],
    sum: CUdeviceptr,
}

/// One product of a warpgroup of 64 rows, whose inner dimension is K, against a loop.
fn check(columns: usize, swizzle: usize, along_k: bool, in_registers: bool) {
    let what = format!("{columns} columns, swizzle {swizzle}, along k {along_k}, registers {in_registers}");
    let mut numbers = Numbers(columns as u32);
    let (left, right) = (numbers.matrix(64), numbers.matrix(columns));
    let of_left = Layout { start: 0, rows: 64, swizzle, along_k: true };
    let of_right = Layout { start: 64 * K * 2, rows: columns, swizzle, along_k };
    let mut image = vec![0_u16; (64 + columns) * K];
    for k in 0..K {
        (0..64).for_each(|m| image[swizzled(of_left.byte(m, k), swizzle) / 2] = bf16(left[m * K + k]));
        (0..columns).for_each(|n| image[swizzled(of_right.byte(n, k), swizzle) / 2] = bf16(right[n * K + k]));
    }
    let fragments: Vec<u32> = (0..128)
        .flat_map(|thread| (0..4).flat_map(|step| fragment(&left, thread, step)).collect::<Vec<_>>())
        .collect();
    let stream = stream();
    let mut with = Arguments {
        image: upload(&image, stream),
        quads: (image.len() / 8) as u64,
        fragments: upload(&fragments, stream),
        left: [0, 1, 2, 3].map(|step| of_left.descriptor(step)),
        right: [0, 1, 2, 3].map(|step| of_right.descriptor(step)),
        sum: allocate(64 * columns, stream),
    };
    let kernel = kernel(PRODUCTS, &format!("product_{columns}_{}_{in_registers}", !along_k));
    let arguments: &mut [*mut c_void] = &mut [from_mut(&mut with).cast()];
    // SAFETY: this is the kernel's argument.
    unsafe { result::launch_kernel(kernel, (2, 1, 1), (128, 1, 1), 48 << 10, stream, arguments) }
        .expect("a launch");
    let sums: Vec<f32> = download(with.sum, 64 * columns, stream);
    for (thread, mine) in sums.chunks(columns / 2).enumerate() {
        for (i, &sum) in mine.iter().enumerate() {
            let (m, n) = place(thread, i);
            let expected: f32 = (0..K).map(|k| left[m * K + k] * right[n * K + k]).sum();
            assert_eq!(sum, expected, "row {m}, column {n}: {what}");
        }
    }
}

#[test]
fn a_warpgroup_multiplies_matrices_in_shared_memory_and_in_registers() {
    if !enter(0) {
        return;
    }
    for in_registers in [false, true] {
        for columns in [64, 128] {
            for swizzle in 0..4 {
                check(columns, swizzle, true, in_registers);
                check(columns, swizzle, false, in_registers);
            }
        }
        check(24, 3, true, in_registers);
    }
}

const LOADS: &str = r#"
// What is in shared memory after each of some loads of a box of 64 by 16 by 2 by 1 numbers.
extern "C" __global__ void boxes(const __grid_constant__ TensorMap map, const int *from, unsigned loads,
                                 uint4 *seen) {
    extern __shared__ __align__(1024) unsigned char shared[];
    const unsigned barrier = 4096;
    if (threadIdx.x == 0) barrier_init(barrier, 1);
    barrier_init_fence();
    __syncthreads();
    for (unsigned i = 0; i < loads; i++) {
        if (threadIdx.x == 0) {
            const int *at = from + 4 * i;
            tensor_prefetch(map);
            barrier_expect(barrier, 4096);
            tensor_load(0, map, barrier, at[0], at[1], at[2], at[3]);
        }
        barrier_wait(barrier, i % 2);
        for (unsigned k = threadIdx.x; k < 256; k += blockDim.x) seen[i * 256 + k] = ((uint4 *)shared)[k];
        __syncthreads();
    }
}
"#;

#[test]
fn a_load_brings_a_box_of_a_tensor_and_zeros_around_it() {
    if !enter(0) {
        return;
    }
    let stream = stream();
    let sizes = [72, 20, 3, 2];
    // Heads between the tokens, and rows that are longer than their numbers.
    let strides = [3 * 160, 160, 20 * 3 * 160];
    let numbers: Vec<u16> = (0..2 * 20 * 3 * 80).map(|i| i as u16 | 1).collect();
    let start = upload(&numbers, stream);
    let mut map = tensor_map(start, sizes, strides, [64, 16, 2, 1]).expect("a map");
    let from = [
        [0, 0, 0, 0],
        [8, 4, 1, 1],
        [-8, -3, -1, 0],
        [40, 10, 2, 1],
        [65, 19, 0, 0],
        [0, 0, 0, 2],
        [0, 0, 0, -1],
    ];
    let (mut at, mut seen, mut loads) =
        (upload(&from, stream), allocate(from.len() * 1024, stream), from.len() as u32);
    let arguments: &mut [*mut c_void] = &mut [
        from_mut(&mut map).cast(),
        from_mut(&mut at).cast(),
        from_mut(&mut loads).cast(),
        from_mut(&mut seen).cast(),
    ];
    let boxes = kernel(LOADS, "boxes");
    // SAFETY: these are the kernel's arguments.
    unsafe { result::launch_kernel(boxes, (1, 1, 1), (64, 1, 1), 4104, stream, arguments) }
        .expect("a launch");
    let seen: Vec<u16> = download(seen, from.len() * 2048, stream);
    for (from, seen) in from.iter().zip(seen.chunks(2048)) {
        for i in 0..2048 {
            let within = [i % 64, i / 64 % 16, i / 1024, 0];
            let at: Vec<i64> = (0..4).map(|d| i64::from(from[d]) + within[d] as i64).collect();
            let inside = (0..4).all(|d| at[d] >= 0 && at[d] < sizes[d] as i64);
            let bytes = |at: &[i64]| 2 * at[0] + (1..4).map(|d| at[d] * strides[d - 1] as i64).sum::<i64>();
            let expected = if inside { numbers[bytes(&at) as usize / 2] } else { 0 };
            assert_eq!(seen[swizzled(2 * i, 3) / 2], expected, "{at:?} of a load from {from:?}");
        }
    }
}

const ROLES: &str = r#"
typedef unsigned long long u64;
// Row blocks of a matrix times one matrix, by a warpgroup that loads and two that multiply in turn. A ring of
// two places holds 64 columns of both matrices.
extern "C" __global__ void roles(const __grid_constant__ TensorMap left,
                                 const __grid_constant__ TensorMap right, unsigned steps, float *sum) {
    extern __shared__ __align__(1024) unsigned char shared[];
    const unsigned PLACE = 32768, barriers = 2 * PLACE;
    if (threadIdx.x == 0) {
        for (unsigned i = 0; i < 2; i++) {
            barrier_init(barriers + 8 * i, 1);
            barrier_init(barriers + 16 + 8 * i, 2);
        }
        barrier_init_fence();
    }
    __syncthreads();
    const unsigned group = threadIdx.x / 128;
    if (group == 0) {
        registers_fewer<40>();
        if (threadIdx.x > 0) return;
        for (unsigned step = 0; step < steps; step++) {
            const unsigned place = step % 2, full = barriers + 8 * place, empty = full + 16;
            barrier_wait(empty, step / 2 % 2 ^ 1);
            barrier_expect(full, PLACE);
            tensor_load(place * PLACE, left, full, 64 * step, 128 * blockIdx.x, 0, 0);
            tensor_load(place * PLACE + 16384, right, full, 64 * step, 0, 0, 0);
        }
        return;
    }
    registers_more<232>();
    if (group == 2) named_arrive(1, 256);
    float mine[64];
    for (unsigned step = 0; step < steps; step++) {
        const unsigned place = step % 2, full = barriers + 8 * place, empty = full + 16;
        // The groups multiply in turn.
        named_barrier(group, 256);
        barrier_wait(full, step / 2 % 2);
        wgmma_fence();
        for (unsigned k = 0; k < 4; k++) {
            const u64 fields = (u64)64 << 32 | (u64)1 << 16 | (u64)1 << 62;
            const unsigned rows = place * PLACE + (group - 1) * 8192;
            wgmma<128, false>(mine, fields | (shared_address(rows) + 32 * k) >> 4,
                              fields | (shared_address(place * PLACE + 16384) + 32 * k) >> 4, step + k > 0);
        }
        wgmma_commit();
        named_arrive(group ^ 3, 256);
        wgmma_wait<0>();
        named_barrier(group + 2, 128);
        if (threadIdx.x % 128 == 0) barrier_arrive(empty);
    }
    for (unsigned i = 0; i < 64; i++)
        sum[(blockIdx.x * 256 + threadIdx.x - 128) * 64 + i] = mine[i];
}
"#;

#[test]
fn warps_with_different_roles_share_a_ring_of_loads() {
    if !enter(0) {
        return;
    }
    let stream = stream();
    let (steps, blocks) = (5, 2);
    let columns = 64 * steps;
    let mut numbers = Numbers(7);
    let [left, right] =
        [128 * blocks, 128].map(|rows| (0..rows * columns).map(|_| numbers.next()).collect::<Vec<_>>());
    let map = |numbers: &[f32]| {
        let numbers: Vec<u16> = numbers.iter().map(|&x| bf16(x)).collect();
        let pitch = 2 * columns as u64;
        let (rows, all) = ((numbers.len() / columns) as u64, 2 * numbers.len() as u64);
        let sizes = [columns as u64, rows, 1, 1];
        tensor_map(upload(&numbers, stream), sizes, [pitch, all, all], [64, 128, 1, 1]).expect("a map")
    };
    let (mut of_left, mut of_right) = (map(&left), map(&right));
    let (mut count, mut sums) = (steps as u32, allocate(128 * blocks * 128, stream));
    let arguments: &mut [*mut c_void] = &mut [
        from_mut(&mut of_left).cast(),
        from_mut(&mut of_right).cast(),
        from_mut(&mut count).cast(),
        from_mut(&mut sums).cast(),
    ];
    let (roles, shared) = (kernel(ROLES, "roles"), 65536 + 32);
    let attribute = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    // SAFETY: these are the kernel's arguments.
    unsafe {
        result::function::set_function_attribute(roles, attribute, shared).expect("an attribute");
        result::launch_kernel(roles, (blocks as u32, 1, 1), (384, 1, 1), shared as u32, stream, arguments)
            .expect("a launch");
    }
    let sums: Vec<f32> = download(sums, 128 * blocks * 128, stream);
    for (i, &sum) in sums.iter().enumerate() {
        let (row, column) = place(i / 64 % 128, i % 64);
        let row = i / 64 / 128 * 64 + row;
        let expected: f32 = (0..columns).map(|k| left[row * columns + k] * right[column * columns + k]).sum();
        assert_eq!(sum, expected, "row {row}, column {column}");
    }
}
