// What Hopper has beside mma.cu: products of a warpgroup, copies by the tensor memory accelerator, barriers
// that count bytes. Wrappers of PTX instructions. The emulator has the same functions for the host, in
// stages/emulator/src/kernel/hopper.h, written from the manual apart from these.
//
// As in mma.cu, an address in shared memory is the offset in bytes from the start of the block's dynamic
// shared memory; `shared_address` gives what a descriptor needs. Source: PTX ISA 9.0, "mbarrier",
// "cp.async.bulk.tensor", "Asynchronous Warpgroup Level Matrix Multiply-Accumulate", "setmaxnreg".

#if !defined(PIPEWRIGHT_HOST) && defined(__CUDA_ARCH_FEAT_SM90_ALL)

// A `CUtensorMap` of the driver, an argument of a kernel: `const __grid_constant__`.
struct alignas(128) TensorMap {
    u64 opaque[16];
};

// ---- Barriers in shared memory, of 8 bytes ----

// A phase ends after so many arrivals, and when all bytes that were expected in it have come.
__forceinline__ void barrier_init(unsigned barrier, unsigned arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals)
                 : "memory");
}

// After this the copies of this thread, and after the block's barrier all others, see what was initialised.
__forceinline__ void barrier_init_fence() {
    asm volatile("fence.mbarrier_init.release.cluster;\n\tfence.proxy.async.shared::cta;" ::: "memory");
}

// Arrives, and lets the phase wait for so many bytes more.
__forceinline__ void barrier_expect(unsigned barrier, unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
                 "r"(bytes)
                 : "memory");
}

__forceinline__ void barrier_arrive(unsigned barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}

// Returns when the phase of this parity has ended. The first phase has parity 0.
__forceinline__ void barrier_wait(unsigned barrier, unsigned parity) {
    unsigned ended;
    do
        asm volatile("{\n\t.reg .pred ended;\n\t"
                     "mbarrier.try_wait.parity.shared::cta.b64 ended, [%1], %2;\n\t"
                     "selp.u32 %0, 1, 0, ended;\n\t}"
                     : "=r"(ended)
                     : "r"(shared_address(barrier)), "r"(parity)
                     : "memory");
    while (!ended);
}

// ---- Copies of boxes of a tensor, by one thread ----

// Starts to copy the box at these coordinates, the fastest first. The barrier gets the bytes of all the box,
// also of what lies outside of the tensor, which becomes zeros.
__forceinline__ void tensor_load(unsigned to, const TensorMap &map, unsigned barrier, int c0, int c1, int c2,
                                 int c3) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(shared_address(to)), "l"(&map),
                 "r"(shared_address(barrier)), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
                 : "memory");
}

__forceinline__ void tensor_prefetch(const TensorMap &map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// Later copies and products, which read by descriptors, see what this thread has written to shared memory.
__forceinline__ void shared_fence() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// ---- Parts of a block ----

// Barrier `id`, from 0 to 15 (0 is that of __syncthreads), of so many threads of the block.
__forceinline__ void named_barrier(unsigned id, unsigned threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// The registers of each thread of a warpgroup from now on, a multiple of 8.
template <unsigned N> __forceinline__ void registers_more() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}
template <unsigned N> __forceinline__ void registers_fewer() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

// ---- Products of a warpgroup: 64 x 16 times 16 x N, while its warps go on ----

// To be called before the first product, and after registers of products were written.
__forceinline__ void wgmma_fence() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__forceinline__ void wgmma_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Returns when at most the LEFT latest of what was committed are not done.
template <unsigned LEFT> __forceinline__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}

// The words of eight sums from number I on, as an asm statement takes them.
#define SUMS_8(I)                                                            \
    "+f"(sum[I]), "+f"(sum[I + 1]), "+f"(sum[I + 2]), "+f"(sum[I + 3]),      \
        "+f"(sum[I + 4]), "+f"(sum[I + 5]), "+f"(sum[I + 6]), "+f"(sum[I + 7])
#define SUMS_32(I) SUMS_8(I), SUMS_8(I + 8), SUMS_8(I + 16), SUMS_8(I + 24)

#define NAMES_32                                                                                 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, " \
    "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"

#define NAMES_64                                                                                 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, " \
    "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, " \
    "%38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, " \
    "%56, %57, %58, %59, %60, %61, %62, %63"

// sum = left * right, or sum += left * right if `add`. In shared memory numbers that are neighbours along K
// lie beside each other, in the right matrix if it is not TRANSPOSED; else those along N. In the sums, and in
// a left matrix of registers, each warp has 16 rows, in the fragments of mma.cu.
template <unsigned N, bool TRANSPOSED>
__forceinline__ void wgmma(float (&sum)[N / 2], u64 left, u64 right, bool add) {
    static_assert(N == 128, "no kernel needs others");
    asm volatile("{\n\t.reg .pred is_added;\n\tsetp.ne.b32 is_added, %66, 0;\n\t"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" NAMES_64 "}, "
                 "%64, %65, is_added, 1, 1, 0, %67;\n\t}"
                 : SUMS_32(0), SUMS_32(32)
                 : "l"(left), "l"(right), "r"((int)add), "n"((int)TRANSPOSED));
}

template <unsigned N, bool TRANSPOSED>
__forceinline__ void wgmma(float (&sum)[N / 2], const unsigned (&left)[4], u64 right, bool add) {
    static_assert(N == 64 || N == 128, "no kernel needs others");
    if constexpr (N == 64)
        asm volatile("{\n\t.reg .pred is_added;\n\tsetp.ne.b32 is_added, %37, 0;\n\t"
                     "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" NAMES_32 "}, "
                     "{%32, %33, %34, %35}, %36, is_added, 1, 1, %38;\n\t}"
                     : SUMS_32(0)
                     : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right), "r"((int)add),
                       "n"((int)TRANSPOSED));
    else
        asm volatile("{\n\t.reg .pred is_added;\n\tsetp.ne.b32 is_added, %69, 0;\n\t"
                     "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" NAMES_64 "}, "
                     "{%64, %65, %66, %67}, %68, is_added, 1, 1, %70;\n\t}"
                     : SUMS_32(0), SUMS_32(32)
                     : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right), "r"((int)add),
                       "n"((int)TRANSPOSED));
}

#undef SUMS_8
#undef SUMS_32
#undef NAMES_32
#undef NAMES_64

#endif
