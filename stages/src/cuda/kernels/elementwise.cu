// Loops over single numbers. Each thread has eight. Blocks may have any number of threads.

// out[i] = f(in[i]). `out` may be `in`.
template <class Out, class In, class F> void map(Out* out, const In* in, u64 count, F f) {
    u64 first = 8 * global_thread();
    unsigned some = some_of_8(first, count);
    bool whole = some == 8 && is_aligned(out) && is_aligned(in);
    float x[8];
    load_some(in + first, some, whole, x);
    for (int i = 0; i < 8; ++i) x[i] = f(x[i]);
    store_some(out + first, some, whole, x);
}

// out[i] = f(a[i], b[i]). `out` may be `a` or `b`.
template <class T, class F> void map_two(T* out, const T* a, const T* b, u64 count, F f) {
    u64 first = 8 * global_thread();
    unsigned some = some_of_8(first, count);
    bool whole = some == 8 && is_aligned(out) && is_aligned(a) && is_aligned(b);
    float x[8], y[8];
    load_some(a + first, some, whole, x);
    load_some(b + first, some, whole, y);
    for (int i = 0; i < 8; ++i) x[i] = f(x[i], y[i]);
    store_some(out + first, some, whole, x);
}

// ---- Sums, products and casts ----

// out = a + b, each [count].
#define MAKE(T, SUFFIX)                                                                              \
    extern "C" __global__ void __launch_bounds__(256)                                                \
        add##SUFFIX(T* out, const T* a, const T* b, u64 count) {                                     \
        map_two(out, a, b, count, [](float x, float y) { return x + y; });                           \
    }
F32_AND_BF16(MAKE)
#undef MAKE

// product *= factor, each [count].
#define MAKE(T, SUFFIX)                                                                              \
    extern "C" __global__ void __launch_bounds__(256)                                                \
        multiply##SUFFIX(T* product, const T* factor, u64 count) {                                   \
        map_two(product, product, factor, count, [](float x, float y) { return x * y; });            \
    }
F32_AND_BF16(MAKE)
#undef MAKE

// out = in, each [count], with conversion of the number format.
extern "C" __global__ void __launch_bounds__(256)
    cast_f32_to_bf16(bf16* out, const float* in, u64 count) {
    map(out, in, count, [](float x) { return x; });
}
extern "C" __global__ void __launch_bounds__(256)
    cast_bf16_to_f32(float* out, const bf16* in, u64 count) {
    map(out, in, count, [](float x) { return x; });
}
