// The instructions of Hopper: products of a warpgroup, barriers in shared memory, loads of tensors. Each is a
// function that stands for one instruction of PTX, with its operands; the driver does the work (../hopper/).
// An address in shared memory is an offset from the start of dynamic shared memory, which counts as aligned to
// 1024 bytes.
#pragma once
#include "abi.h"

/// CUtensorMap.
struct alignas(64) TensorMap {
    unsigned long long opaque[16];
};

// In descriptors, too.
static inline unsigned shared_address(unsigned offset) { return offset; }

static inline void barrier_init(unsigned barrier, unsigned arrivals) {
    pw_runtime.hopper.barrier_init(barrier, arrivals);
}
static inline void barrier_init_fence() { pw_runtime.hopper.barrier_init_fence(); }
static inline void barrier_expect(unsigned barrier, unsigned bytes) {
    pw_runtime.hopper.barrier_arrive(barrier, bytes);
}
static inline void barrier_arrive(unsigned barrier) { pw_runtime.hopper.barrier_arrive(barrier, 0); }
static inline void barrier_wait(unsigned barrier, unsigned parity) {
    pw_runtime.hopper.barrier_wait(barrier, parity);
}
static inline void named_barrier(unsigned id, unsigned threads) {
    pw_runtime.hopper.named_barrier(id, threads, true);
}
static inline void named_arrive(unsigned id, unsigned threads) {
    pw_runtime.hopper.named_barrier(id, threads, false);
}

static inline void tensor_load(unsigned to, const TensorMap &map, unsigned barrier, int c0, int c1, int c2,
                               int c3) {
    const int coordinates[4] = {c0, c1, c2, c3};
    pw_runtime.hopper.tensor_load(to, &map, barrier, coordinates);
}
static inline void tensor_prefetch(const TensorMap &map) { pw_runtime.hopper.tensor_prefetch(&map); }
static inline void shared_fence() { pw_runtime.hopper.shared_fence(); }

static inline void pw_step(PwStepKind kind, unsigned number) {
    PwStep step = {};
    step.kind = kind, step.number = number;
    pw_runtime.hopper.step(&step);
}
template <unsigned N> static inline void registers_more() {
    static_assert(N >= 24 && N <= 256 && N % 8 == 0, "setmaxnreg takes multiples of 8 from 24 to 256");
    pw_step(PW_MORE_REGISTERS, N);
}
template <unsigned N> static inline void registers_fewer() {
    static_assert(N >= 24 && N <= 256 && N % 8 == 0, "setmaxnreg takes multiples of 8 from 24 to 256");
    pw_step(PW_FEWER_REGISTERS, N);
}
static inline void wgmma_fence() { pw_step(PW_FENCE, 0); }
static inline void wgmma_commit() { pw_step(PW_COMMIT, 0); }
template <unsigned LEFT> static inline void wgmma_wait() { pw_step(PW_WAIT, LEFT); }

template <unsigned N, bool TRANSPOSED>
static inline void wgmma(float (&sum)[N / 2], unsigned long left, unsigned long right, bool add) {
    static_assert(N >= 8 && N <= 256 && N % 8 == 0, "wgmma takes multiples of 8 columns up to 256");
    const PwStep step = {PW_PRODUCT, TRANSPOSED, add, N, left, right, nullptr, sum};
    pw_runtime.hopper.step(&step);
}
template <unsigned N, bool TRANSPOSED>
static inline void wgmma(float (&sum)[N / 2], const unsigned (&left)[4], unsigned long right, bool add) {
    static_assert(N >= 8 && N <= 256 && N % 8 == 0, "wgmma takes multiples of 8 columns up to 256");
    const PwStep step = {PW_PRODUCT, TRANSPOSED, add, N, 0, right, left, sum};
    pw_runtime.hopper.step(&step);
}
