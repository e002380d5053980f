// What all kernels share: number formats, loads and stores, reductions in a fixed order.
//
// PIPEWRIGHT_HOST is set if a C++ compiler builds the kernels for the host. Each function with an instruction
// of the device has a second form for the host.

typedef unsigned long long u64;

// Makes the two kernels of a template: MAKE(type, suffix of the name).
#define F32_AND_BF16(MAKE) MAKE(float, _f32) MAKE(bf16, _bf16)

// ---- Numbers ----

// The upper half of a float: 8 bits of exponent and 7 bits of mantissa.
struct bf16 {
    unsigned short bits;
};

inline float bits_to_float(unsigned bits) {
#if defined(PIPEWRIGHT_HOST)
    float x;
    __builtin_memcpy(&x, &bits, 4);
    return x;
#else
    return __uint_as_float(bits);
#endif
}

inline unsigned float_to_bits(float x) {
#if defined(PIPEWRIGHT_HOST)
    unsigned bits;
    __builtin_memcpy(&bits, &x, 4);
    return bits;
#else
    return __float_as_uint(x);
#endif
}

inline float to_float(float x) { return x; }
inline float to_float(bf16 x) { return bits_to_float((unsigned)x.bits << 16); }

// Rounds to the nearest, ties to even. NaN stays NaN.
inline bf16 to_bf16(float x) {
    bf16 y;
#if defined(PIPEWRIGHT_HOST)
    unsigned bits = float_to_bits(x);
    bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
    y.bits = is_nan ? 0x7fffu : (unsigned short)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
#else
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
#endif
    return y;
}

// Two numbers in a word, the first in the lower half.
inline unsigned pack_bf16x2(float low, float high) {
#if defined(PIPEWRIGHT_HOST)
    return (unsigned)to_bf16(low).bits | (unsigned)to_bf16(high).bits << 16;
#else
    unsigned word;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
#endif
}

inline float low_of(unsigned word) { return bits_to_float(word << 16); }
inline float high_of(unsigned word) { return bits_to_float(word & 0xffff0000u); }

template <class T> float load(const T* from) { return to_float(*from); }
inline void store(float* to, float x) { *to = x; }
inline void store(bf16* to, float x) { *to = to_bf16(x); }

// The value that a number has after it is stored.
template <class T> float rounded(float x);
template <> inline float rounded<float>(float x) { return x; }
template <> inline float rounded<bf16>(float x) { return to_float(to_bf16(x)); }

// ---- Exponentials: as exact as the number format allows (for bf16: relative error 2^-21 unless the result
// is tiny) ----

template <class T> float exp_of(float x);
template <> inline float exp_of<float>(float x) { return expf(x); }
#if defined(PIPEWRIGHT_HOST)
template <> inline float exp_of<bf16>(float x) { return __expf(x); }
#else
// As `__expf`, but what is below 2^-126 becomes 0, which takes two instructions less.
template <> inline float exp_of<bf16>(float x) {
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x * 1.44269504f));
    return power;
}
#endif

template <class T> float quotient(float a, float b);
template <> inline float quotient<float>(float a, float b) { return a / b; }
template <> inline float quotient<bf16>(float a, float b) { return __fdividef(a, b); }

// ---- Loads and stores of eight numbers, 16 bytes at once ----

struct alignas(16) Quad {
    unsigned word[4];
};

// Whether the address allows loads and stores of 16 bytes.
inline bool is_aligned(const void* at) { return ((u64)at & 15u) == 0; }

inline void load_all(const bf16* from, float (&x)[8]) {
    Quad quad = *(const Quad*)from;
    for (int i = 0; i < 4; ++i) {
        x[2 * i] = low_of(quad.word[i]);
        x[2 * i + 1] = high_of(quad.word[i]);
    }
}

inline void load_all(const float* from, float (&x)[8]) {
    Quad first = ((const Quad*)from)[0], second = ((const Quad*)from)[1];
    for (int i = 0; i < 4; ++i) {
        x[i] = bits_to_float(first.word[i]);
        x[i + 4] = bits_to_float(second.word[i]);
    }
}

// In one instruction. The compiler makes narrow stores of an assignment where it joins two branches that end
// with it.
inline void store_quad(void* to, const Quad& quad) {
#if defined(PIPEWRIGHT_HOST)
    *(Quad*)to = quad;
#else
    asm volatile("st.v4.b32 [%0], {%1, %2, %3, %4};"
                 :: "l"(to), "r"(quad.word[0]), "r"(quad.word[1]), "r"(quad.word[2]), "r"(quad.word[3])
                 : "memory");
#endif
}

inline void store_all(bf16* to, const float (&x)[8]) {
    Quad quad;
    for (int i = 0; i < 4; ++i) quad.word[i] = pack_bf16x2(x[2 * i], x[2 * i + 1]);
    store_quad(to, quad);
}

inline void store_all(float* to, const float (&x)[8]) {
    Quad first, second;
    for (int i = 0; i < 4; ++i) {
        first.word[i] = float_to_bits(x[i]);
        second.word[i] = float_to_bits(x[i + 4]);
    }
    store_quad(to, first);
    store_quad(to + 4, second);
}

// Loads four `float` at once. For kernels that only use `float`, so that a warp reads and writes without
// gaps.
inline void load_all(const float* from, float (&x)[4]) {
    Quad quad = *(const Quad*)from;
    for (int i = 0; i < 4; ++i) x[i] = bits_to_float(quad.word[i]);
}

inline void store_all(float* to, const float (&x)[4]) {
    Quad quad;
    for (int i = 0; i < 4; ++i) quad.word[i] = float_to_bits(x[i]);
    store_quad(to, quad);
}

struct alignas(8) Pair {
    unsigned word[2];
};

inline void load_all(const bf16* from, float (&x)[4]) {
    Pair pair = *(const Pair*)from;
    for (int i = 0; i < 2; ++i) x[2 * i] = low_of(pair.word[i]), x[2 * i + 1] = high_of(pair.word[i]);
}

inline void store_all(bf16* to, const float (&x)[4]) {
    *(Pair*)to = {{pack_bf16x2(x[0], x[1]), pack_bf16x2(x[2], x[3])}};
}

// Loads the first `count` of N numbers; the others are 0. `whole` says that `count` is N or 0 and the address
// is aligned.
template <class T, unsigned N> void load_some(const T* from, unsigned count, bool whole, float (&x)[N]) {
    if (whole && count > 0) return load_all(from, x);
    for (unsigned i = 0; i < N; ++i) x[i] = i < count ? load(from + i) : 0.0f;
}

// The same twice, for eight numbers each, with both loads in flight at once.
template <class T>
void load_both(const T* a, unsigned a_count, float (&x)[8], const T* b, unsigned b_count, float (&y)[8],
               bool whole) {
    if (whole && a_count > 0 && b_count > 0) {
        load_all(a, x);
        load_all(b, y);
    } else {
        load_some(a, a_count, whole, x);
        load_some(b, b_count, whole, y);
    }
}

template <class T, unsigned N> void store_some(T* to, unsigned count, bool whole, const float (&x)[N]) {
    if (whole && count > 0) return store_all(to, x);
    for (unsigned i = 0; i < N; ++i)
        if (i < count) store(to + i, x[i]);
}

// How many of the N numbers from `first` on are below `end`.
template <unsigned N> unsigned some_of(u64 first, u64 end) {
    return first >= end ? 0 : end - first < N ? (unsigned)(end - first) : N;
}
inline unsigned some_of_8(u64 first, u64 end) { return some_of<8>(first, end); }

// The block's dynamic shared memory.
__forceinline__ unsigned char *dynamic_shared() {
    extern __shared__ __align__(128) unsigned char bytes[];
    return bytes;
}

// ---- Thread indices ----

inline unsigned lane() { return threadIdx.x % 32; }
inline unsigned warp() { return threadIdx.x / 32; }
inline u64 global_thread() { return (u64)blockIdx.x * blockDim.x + threadIdx.x; }
inline u64 global_threads() { return (u64)gridDim.x * blockDim.x; }

// ---- Launches for many parameters ----

// The most entries of a launch. It is the same in src/cuda/batched_launch.rs. The arguments of a kernel may have 4096
// bytes.
const unsigned MOST = 64;

// What each entry of a launch works on. Its blocks end before block `ends` of the grid, and begin where the
// blocks of the entry before end.
template <class Entry> struct Together {
    Entry entries[MOST];
    unsigned ends[MOST];
};

// The entry that this block works on. `block`: which of the entry's blocks it is.
template <class Entry> const Entry& entry_of(const Together<Entry>& together, unsigned& block) {
    unsigned index = 0;
    for (unsigned step = MOST / 2; step > 0; step /= 2)
        if (blockIdx.x >= together.ends[index + step - 1]) index += step;
    block = blockIdx.x - (index > 0 ? together.ends[index - 1] : 0);
    return together.entries[index];
}

// ---- Reductions; every thread gets the result ----

const unsigned ALL_LANES = 0xffffffffu;

// The sum over a warp, or over each group of `lanes` neighbouring lanes (a power of two).
template <class N> N warp_sum(N x, int lanes = 32) {
    for (int apart = lanes / 2; apart > 0; apart /= 2) x += __shfl_xor_sync(ALL_LANES, x, apart);
    return x;
}

inline float warp_max(float x) {
    for (int apart = 16; apart > 0; apart /= 2) x = fmaxf(x, __shfl_xor_sync(ALL_LANES, x, apart));
    return x;
}

// The sum over a block of whole warps. All threads of the block must call it.
template <class N> N block_sum(N x) {
    __shared__ N sums[32];
    x = warp_sum(x);
    __syncthreads();  // All have read the previous call's sums.
    if (lane() == 0) sums[warp()] = x;
    __syncthreads();
    return warp_sum(lane() < blockDim.x / 32 ? sums[lane()] : N(0));
}

inline float block_max(float x) {
    __shared__ float largest[32];
    x = warp_max(x);
    __syncthreads();  // As above.
    if (lane() == 0) largest[warp()] = x;
    __syncthreads();
    return warp_max(largest[lane() < blockDim.x / 32 ? lane() : 0]);
}
