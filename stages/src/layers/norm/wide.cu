// Norms of rows of any width. Like norm.cu, but each row has a block of whole warps. It reads the row
// again instead of keeping it in registers.

// Like `layer_norm`.
template <bool AGAIN, class T>
void layer_norm_wide(T* out, float* stats, const T* in, const float* gain, const float* shift, u64 rows,
                     unsigned width, float epsilon) {
    for (u64 row = blockIdx.x; row < rows; row += gridDim.x) {
        const T* from = in + row * width;
        float mean = 0.0f, scale = 0.0f;
        if (AGAIN) {
            mean = stats[2 * row], scale = stats[2 * row + 1];
        } else {
            if (shift) {
                for (unsigned i = threadIdx.x; i < width; i += blockDim.x) mean += load(from + i);
                mean = block_sum(mean) / (float)width;
            }
            for (unsigned i = threadIdx.x; i < width; i += blockDim.x) {
                float apart = load(from + i) - mean;
                scale = fmaf(apart, apart, scale);
            }
            scale = 1.0f / sqrtf(block_sum(scale) / (float)width + epsilon);
            if (threadIdx.x == 0) stats[2 * row] = mean, stats[2 * row + 1] = scale;
        }
        for (unsigned i = threadIdx.x; i < width; i += blockDim.x)
            store(out + row * width + i,
                  fmaf((load(from + i) - mean) * scale, gain[i], shift ? shift[i] : 0.0f));
    }
}

// Like `layer_norm_backward`. Each thread has columns of its own, so it can add to the partial sums directly.
template <class T>
void layer_norm_backward_wide(T* grad, float* partials, const T* onto, const T* in, const float* stats,
                              const float* gain, u64 rows, unsigned width, unsigned is_centred) {
    float* gain_grads = partials + (u64)blockIdx.x * 2 * width;
    float* shift_grads = gain_grads + width;
    for (unsigned i = threadIdx.x; i < width; i += blockDim.x) gain_grads[i] = shift_grads[i] = 0.0f;
    for (u64 row = blockIdx.x; row < rows; row += gridDim.x) {
        float mean = stats[2 * row], scale = stats[2 * row + 1], total = 0.0f, along = 0.0f;
        for (unsigned i = threadIdx.x; i < width; i += blockDim.x) {
            float g = load(grad + row * width + i), x = load(in + row * width + i) - mean;
            gain_grads[i] = fmaf(g, x * scale, gain_grads[i]);
            shift_grads[i] += g;
            total = fmaf(g, gain[i], total);
            along = fmaf(g * gain[i], x, along);
        }
        total = is_centred ? block_sum(total) / (float)width : 0.0f;
        float slope = block_sum(along) / (float)width * scale * scale;
        for (unsigned i = threadIdx.x; i < width; i += blockDim.x) {
            float g = load(grad + row * width + i), x = load(in + row * width + i) - mean;
            float in_grad = scale * fmaf(x, -slope, fmaf(g, gain[i], -total));
            if (onto) in_grad = rounded<T>(in_grad) + load(onto + row * width + i);
            store(grad + row * width + i, in_grad);
        }
    }
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
