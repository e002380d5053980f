// CUDA C++ for the host's compiler, as far as kernels without headers use it. The emulated NVRTC compiles
// kernels with it. This file defines the keywords `__global__`, `__shared__` and so on; ../nvrtc/rewrite.cpp
// rewrites `extern __shared__` and `__launch_bounds__`, and counts
// what is `__shared__`.
#pragma once
#include "abi.h"
#include <math.h>
#include <stdint.h>
#include <string.h>
#include <new>
#include <tuple>
#include <type_traits>

#define PIPEWRIGHT_HOST 1
#define __global__
#define __device__
#define __host__
#define __constant__
#define __grid_constant__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __align__(bytes) alignas(bytes)
// Blocks run one after the other, so a block's shared memory can be a static variable.
#define __shared__ static

static PwState pw_state;
static PwRuntime pw_runtime;
alignas(1024) static char pw_dynamic_shared[227 * 1024];

#define threadIdx pw_state.thread
#define blockIdx pw_state.block
#define blockDim pw_state.block_dim
#define gridDim pw_state.grid_dim
static const int warpSize = 32;

// After each declaration in static shared memory
#define PW_SHARES(variable)                                                                          \
    do {                                                                                             \
        static unsigned long seen;                                                                   \
        if (seen == pw_state.launch) break;                                                          \
        seen = pw_state.launch;                                                                      \
        pw_runtime.shares(&variable, sizeof variable);                                               \
    } while (0)

// What the host's machine can do and a GPU cannot
static inline void pw_aligned(const char *what, unsigned long address, unsigned long bytes) {
    if (address % bytes) pw_runtime.trap(what, address);
}
#if defined(PW_WATCHED)
#include "watch.h"
void pw_misaligned(const void *address, unsigned long bytes) {
    pw_aligned(bytes == 16 ? "an access to 16 bytes at once" : "an access to 2, 4 or 8 bytes at once",
               (unsigned long)address, bytes);
}
static inline void pw_reads(const void *start, unsigned long bytes) {
    if (bytes) pw_mark(start, bytes, PW_READS);
}
#define PW_WATCH &pw_watch
#else
static inline void pw_reads(const void *, unsigned long) {}
#define PW_WATCH nullptr
#endif

// Vectors
template <class T, unsigned BYTES> struct alignas(BYTES) PwVector2 { T x, y; };
template <class T> struct PwVector3 { T x, y, z; };
template <class T, unsigned BYTES> struct alignas(BYTES) PwVector4 { T x, y, z, w; };
#define PW_VECTORS(name, type)                                                                       \
    using name##2 = PwVector2<type, 2 * sizeof(type)>;                                               \
    using name##3 = PwVector3<type>;                                                                 \
    using name##4 = PwVector4<type, (4 * sizeof(type) < 16 ? 4 * sizeof(type) : 16)>;                \
    static inline name##2 make_##name##2(type x, type y) { return {x, y}; }                          \
    static inline name##3 make_##name##3(type x, type y, type z) { return {x, y, z}; }               \
    static inline name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }
PW_VECTORS(char, signed char)
PW_VECTORS(uchar, unsigned char)
PW_VECTORS(short, short)
PW_VECTORS(ushort, unsigned short)
PW_VECTORS(int, int)
PW_VECTORS(uint, unsigned)
PW_VECTORS(longlong, long long)
PW_VECTORS(ulonglong, unsigned long long)
PW_VECTORS(float, float)
PW_VECTORS(double, double)
#undef PW_VECTORS
struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

// Operations of several threads
static inline void pw_warp_exchange(const void *mine, void *all, unsigned bytes) {
    pw_runtime.exchange(0xffffffffu, mine, all, bytes);
}
static inline unsigned pw_lane() {
    return (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % 32;
}
static inline void __syncthreads() { pw_runtime.barrier(); }
static inline void __syncwarp(unsigned mask = 0xffffffffu) {
    char mine = 0, all[32];
    pw_runtime.exchange(mask, &mine, all, 1);
}
static inline void __threadfence() {}
static inline void __threadfence_block() {}

// `from` is a lane in this lane's group of `width` lanes. If it is outside the group, the lane keeps its own
// value.
template <class T> static inline T pw_shuffle(unsigned mask, T value, int from, bool in_group) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "shuffles take 4 or 8 bytes");
    T all[32];
    pw_runtime.exchange(mask, &value, all, sizeof(T));
    return in_group ? all[from] : value;
}
template <class T> static inline T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
    return pw_shuffle(mask, value, (int)(pw_lane() & ~(width - 1)) + (source & (width - 1)), true);
}
template <class T> static inline T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32) {
    int from = (int)pw_lane() ^ bits;
    return pw_shuffle(mask, value, from & 31, from < (int)((pw_lane() & ~(width - 1)) + width));
}
template <class T> static inline T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32) {
    unsigned within = pw_lane() & (width - 1);
    return pw_shuffle(mask, value, (int)(pw_lane() + by) & 31, within + by < (unsigned)width);
}
template <class T> static inline T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32) {
    unsigned within = pw_lane() & (width - 1);
    return pw_shuffle(mask, value, (int)(pw_lane() - by) & 31, within >= by);
}
static inline unsigned __ballot_sync(unsigned mask, int predicate) {
    unsigned char mine = predicate != 0, all[32];
    unsigned bits = 0;
    pw_runtime.exchange(mask, &mine, all, 1);
    for (unsigned lane = 0; lane < 32; lane++) bits |= (unsigned)(all[lane] == 1) << lane;
    return bits & mask;
}
static inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
static inline int __all_sync(unsigned mask, int predicate) { return __ballot_sync(mask, !predicate) == 0; }

// Atomics need no lock, because threads run one after the other.
template <class T> static inline T pw_exchange(T *address, T value) {
    T old = *address;
    *address = value;
    return old;
}
static inline int atomicAdd(int *address, int value) { return pw_exchange(address, *address + value); }
static inline unsigned atomicAdd(unsigned *address, unsigned value) {
    return pw_exchange(address, *address + value);
}
static inline unsigned long long atomicAdd(unsigned long long *address, unsigned long long value) {
    return pw_exchange(address, *address + value);
}
static inline float atomicAdd(float *address, float value) { return pw_exchange(address, *address + value); }
static inline double atomicAdd(double *address, double value) {
    return pw_exchange(address, *address + value);
}
static inline unsigned atomicMax(unsigned *address, unsigned value) {
    return pw_exchange(address, *address > value ? *address : value);
}
static inline int atomicMax(int *address, int value) {
    return pw_exchange(address, *address > value ? *address : value);
}
static inline unsigned atomicOr(unsigned *address, unsigned value) {
    return pw_exchange(address, *address | value);
}
static inline unsigned atomicExch(unsigned *address, unsigned value) { return pw_exchange(address, value); }
static inline unsigned atomicInc(unsigned *address, unsigned most) {
    return pw_exchange(address, *address >= most ? 0 : *address + 1);
}
static inline unsigned atomicCAS(unsigned *address, unsigned compare, unsigned value) {
    return pw_exchange(address, *address == compare ? value : *address);
}

#include "arithmetic.h"
#include "hopper.h"

// The table of kernels. The emulated NVRTC adds `PW_KERNELS(PW_KERNEL(name, most threads), ...)` at the end
// of the source.
template <class F> struct PwArguments;
template <class... A> struct PwArguments<void (*)(A...)> {
    using Tuple = std::tuple<std::remove_cv_t<A>...>;
    template <size_t... I> static void copy(void **params, void *into, std::index_sequence<I...>) {
        new (into) Tuple(*(std::remove_cv_t<A> *)params[I]...);
    }
    static void capture(void **params, void *into) { copy(params, into, std::index_sequence_for<A...>()); }
    template <class T> static constexpr PwArgument use() {
        if (std::is_class_v<T>) return {PW_NO_POINTER, sizeof(T)};
        if (!std::is_pointer_v<T>) return {PW_NO_POINTER, 0};
        return {std::is_const_v<std::remove_pointer_t<T>> ? PW_READS : PW_WRITES, 0};
    }
    static constexpr unsigned long count = sizeof...(A);
    static constexpr PwArgument uses[] = {use<std::remove_cv_t<A>>()..., {PW_NO_POINTER, 0}};
};
template <auto KERNEL> static void pw_call(void *captured) {
    std::apply(KERNEL, *(typename PwArguments<decltype(KERNEL)>::Tuple *)captured);
}
#define PW_KERNEL(name, most)                                                                        \
    { #name, most, sizeof(PwArguments<decltype(&name)>::Tuple),                                      \
      PwArguments<decltype(&name)>::capture, pw_call<&name>, PwArguments<decltype(&name)>::uses,       \
      PwArguments<decltype(&name)>::count }
#define PW_KERNELS(...)                                                                              \
    static const PwKernel pw_kernels[] = {__VA_ARGS__};                                              \
    extern "C" __attribute__((visibility("default"))) const PwModule pw_module = {                   \
        &pw_state, &pw_runtime, pw_dynamic_shared, sizeof pw_dynamic_shared, pw_kernels,             \
        sizeof pw_kernels / sizeof *pw_kernels, PW_WATCH};
