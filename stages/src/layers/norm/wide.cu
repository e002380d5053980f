// Norms of rows of any width. Like middle.cu, but each row has a block of whole warps. It reads the row again
// instead of keeping it in registers. A thread has eight columns at a time. WHOLE: all eight exist and are
// aligned.

// Like `layer_norm`.
template <bool AGAIN, bool WHOLE, class T>
void layer_norm_wide_rows(T* out, float* stats, const T* in, const float* gain, const float* shift, u64 rows,
                          unsigned width, float epsilon) {
    const unsigned apart = 8 * blockDim.x;
    for (u64 row = blockIdx.x; row < rows; row += gridDim.x) {
        const T* from = in + row * width;
        float mean = 0.0f, scale = 0.0f, x[8];
        if (AGAIN) {
            mean = stats[2 * row], scale = stats[2 * row + 1];
        } else {
            if (shift) {
                for (unsigned first = 8 * threadIdx.x; first < width; first += apart) {
                    load_some(from + first, some_of_8(first, width), WHOLE, x);
                    for (int i = 0; i < 8; ++i) mean += x[i];
                }
                mean = block_sum(mean) / (float)width;
            }
            for (unsigned first = 8 * threadIdx.x; first < width; first += apart) {
                unsigned count = some_of_8(first, width);
                load_some(from + first, count, WHOLE, x);
                for (int i = 0; i < 8; ++i)
                    if (i < count) scale = fmaf(x[i] - mean, x[i] - mean, scale);
            }
            scale = 1.0f / sqrtf(block_sum(scale) / (float)width + epsilon);
            if (threadIdx.x == 0) stats[2 * row] = mean, stats[2 * row + 1] = scale;
        }
        for (unsigned first = 8 * threadIdx.x; first < width; first += apart) {
            unsigned count = some_of_8(first, width);
            float gains[8], shifts[8];
            load_some(from + first, count, WHOLE, x);
            load_some(gain + first, count, WHOLE, gains);
            load_some(shift + first, shift ? count : 0, WHOLE, shifts);
            for (int i = 0; i < 8; ++i) x[i] = fmaf((x[i] - mean) * scale, gains[i], shifts[i]);
            store_some(out + row * width + first, count, WHOLE, x);
        }
    }
}

template <bool AGAIN, class T>
void layer_norm_wide(T* out, float* stats, const T* in, const float* gain, const float* shift, u64 rows,
                     unsigned width, float epsilon) {
    if (width % 8 == 0 && is_aligned(out) && is_aligned(in))
        layer_norm_wide_rows<AGAIN, true>(out, stats, in, gain, shift, rows, width, epsilon);
    else
        layer_norm_wide_rows<AGAIN, false>(out, stats, in, gain, shift, rows, width, epsilon);
}

// Like `layer_norm_backward`. Each thread has columns of its own, so it can add to the partial sums directly.
template <bool WHOLE, class T>
void layer_norm_backward_wide_rows(T* grad, float* partials, const T* onto, const T* in, const float* stats,
                                   const float* gain, u64 rows, unsigned width, unsigned is_centred) {
    const unsigned apart = 8 * blockDim.x;
    float* gain_grads = partials + (u64)blockIdx.x * 2 * width;
    float* shift_grads = gain_grads + width;
    for (u64 row = blockIdx.x; row < rows; row += gridDim.x) {
        T* g_row = grad + row * width;
        const T* x_row = in + row * width;
        float mean = stats[2 * row], scale = stats[2 * row + 1], total = 0.0f, along = 0.0f;
        float x[8], g[8], gains[8], sums[8];
        for (unsigned first = 8 * threadIdx.x; first < width; first += apart) {
            unsigned count = some_of_8(first, width), before = row == blockIdx.x ? 0 : count;
            load_both(x_row + first, count, x, g_row + first, count, g, WHOLE);
            load_some(gain + first, count, WHOLE, gains);
            load_some(gain_grads + first, before, WHOLE, sums);
            for (int i = 0; i < 8; ++i) {
                x[i] -= mean;
                sums[i] = fmaf(g[i], x[i] * scale, sums[i]);
                total = fmaf(g[i], gains[i], total);
                along = fmaf(g[i] * gains[i], x[i], along);
            }
            store_some(gain_grads + first, count, WHOLE, sums);
            load_some(shift_grads + first, before, WHOLE, sums);
            for (int i = 0; i < 8; ++i) sums[i] += g[i];
            store_some(shift_grads + first, count, WHOLE, sums);
        }
        total = is_centred ? block_sum(total) / (float)width : 0.0f;
        float slope = block_sum(along) / (float)width * scale * scale;
        for (unsigned first = 8 * threadIdx.x; first < width; first += apart) {
            unsigned count = some_of_8(first, width);
            load_both(x_row + first, count, x, g_row + first, count, g, WHOLE);
            load_some(gain + first, count, WHOLE, gains);
            for (int i = 0; i < 8; ++i)
                g[i] = scale * fmaf(x[i] - mean, -slope, fmaf(g[i], gains[i], -total));
            if (onto) {
                load_some(onto + row * width + first, count, WHOLE, x);
                for (int i = 0; i < 8; ++i) g[i] = rounded<T>(g[i]) + x[i];
            }
            store_some(g_row + first, count, WHOLE, g);
        }
    }
}

template <class T>
void layer_norm_backward_wide(T* grad, float* partials, const T* onto, const T* in, const float* stats,
                              const float* gain, u64 rows, unsigned width, unsigned is_centred) {
    if (width % 8 == 0 && is_aligned(grad) && is_aligned(onto) && is_aligned(in))
        layer_norm_backward_wide_rows<true>(grad, partials, onto, in, stats, gain, rows, width, is_centred);
    else
        layer_norm_backward_wide_rows<false>(grad, partials, onto, in, stats, gain, rows, width, is_centred);
}

#define MAKE(T, SUFFIX)                                                                              \
    extern "C" __global__ void __launch_bounds__(1024)                                               \
        layer_norm_forward_wide##SUFFIX(T* out, float* stats, const T* in, const float* gain,        \
                                        const float* shift, u64 rows, unsigned width,                \
                                        float epsilon) {                                             \
        layer_norm_wide<false>(out, stats, in, gain, shift, rows, width, epsilon);                   \
    }                                                                                                \
    extern "C" __global__ void __launch_bounds__(1024)                                               \
        layer_norm_forward_again_wide##SUFFIX(T* out, float* stats, const T* in, const float* gain,  \
                                              const float* shift, u64 rows, unsigned width) {        \
        layer_norm_wide<true>(out, stats, in, gain, shift, rows, width, 0.0f);                       \
    }                                                                                                \
    extern "C" __global__ void __launch_bounds__(1024)                                               \
        layer_norm_backward_wide##SUFFIX(T* grad, float* partials, const T* onto, const T* in,       \
                                         const float* stats, const float* gain, u64 rows,            \
                                         unsigned width, unsigned is_centred) {                      \
        layer_norm_backward_wide(grad, partials, onto, in, stats, gain, rows, width, is_centred);    \
    }
F32_AND_BF16(MAKE)
#undef MAKE
