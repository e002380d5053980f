// Norms of rows of at most 1024 numbers. The width must be a multiple of eight, and all addresses
// multiples of 16. Like norm.cu, but each row has one warp, so that no warp waits for another. A lane has N
// times eight columns in registers, 256 apart.

template <int N> struct Eights {
    unsigned width;

    unsigned column(int part) const { return 256 * part + 8 * lane(); }
    bool has(int part) const { return part < N - 1 || column(part) < width; }

    // It has no branch, so that all loads are in flight at once. Columns that do not exist are 0.
    template <class T> void load_from(const T* row, float (&x)[N][8]) const {
        for (int part = 0; part < N; ++part) load_all(row + min(column(part), width - 8), x[part]);
        for (int i = 0; i < 8; ++i)
            if (!has(N - 1)) x[N - 1][i] = 0.0f;
    }
};

// Like `layer_norm`.
template <bool AGAIN, int N, class T>
void layer_norm_narrow(T* out, float* stats, const T* in, const float* gain, const float* shift, u64 row,
                       unsigned width, float epsilon) {
    Eights<N> own = {width};
    float x[N][8], mean = 0.0f, scale = 0.0f;
    own.load_from(in + row * width, x);
    if (AGAIN) {
        mean = stats[2 * row], scale = stats[2 * row + 1];
    } else {
        if (shift) {
            for (int part = 0; part < N; ++part)
                for (int i = 0; i < 8; ++i) mean += x[part][i];
            mean = warp_sum(mean) / (float)width;
        }
        for (int part = 0; part < N; ++part)
            for (int i = 0; i < 8; ++i)
                if (own.has(part)) scale = fmaf(x[part][i] - mean, x[part][i] - mean, scale);
        scale = 1.0f / sqrtf(warp_sum(scale) / (float)width + epsilon);
        if (lane() == 0) stats[2 * row] = mean, stats[2 * row + 1] = scale;
    }
    for (int part = 0; part < N; ++part) {
        if (!own.has(part)) continue;
        float gains[8], shifts[8] = {};
        load_all(gain + own.column(part), gains);
        if (shift) load_all(shift + own.column(part), shifts);
        for (int i = 0; i < 8; ++i) x[part][i] = fmaf((x[part][i] - mean) * scale, gains[i], shifts[i]);
        store_all(out + row * width + own.column(part), x[part]);
    }
}

// One warp per row, eight rows in a block.
template <bool AGAIN, class T>
void layer_norm_narrow(T* out, float* stats, const T* in, const float* gain, const float* shift, u64 rows,
                       unsigned width, float epsilon) {
    u64 row = global_thread() / 32;
    if (row >= rows) return;
    switch ((width - 1) / 256) {
        case 0: return layer_norm_narrow<AGAIN, 1>(out, stats, in, gain, shift, row, width, epsilon);
        case 1: return layer_norm_narrow<AGAIN, 2>(out, stats, in, gain, shift, row, width, epsilon);
        case 2: return layer_norm_narrow<AGAIN, 3>(out, stats, in, gain, shift, row, width, epsilon);
        default: return layer_norm_narrow<AGAIN, 4>(out, stats, in, gain, shift, row, width, epsilon);
    }
}

#define MAKE(T, SUFFIX)                                                                              \
    extern "C" __global__ void __launch_bounds__(256)                                                \
        layer_norm_forward_narrow##SUFFIX(T* out, float* stats, const T* in, const float* gain,      \
                                          const float* shift, u64 rows, unsigned width,              \
                                          float epsilon) {                                           \
        layer_norm_narrow<false>(out, stats, in, gain, shift, rows, width, epsilon);                 \
    }                                                                                                \
    extern "C" __global__ void __launch_bounds__(256)                                                \
        layer_norm_forward_again_narrow##SUFFIX(T* out, float* stats, const T* in,                   \
                                                const float* gain, const float* shift, u64 rows,     \
                                                unsigned width) {                                    \
        layer_norm_narrow<true>(out, stats, in, gain, shift, rows, width, 0.0f);                     \
    }
F32_AND_BF16(MAKE)
#undef MAKE

// to[width] = the sums over the eight warps of a block, in order.
template <int N> void sum_of_warps(float* to, const float (&x)[N][8], unsigned width) {
    __shared__ float sums[8][N][8][32];
    __syncthreads();  // All have read the previous call's sums.
    for (int part = 0; part < N; ++part)
        for (int i = 0; i < 8; ++i) sums[warp()][part][i][lane()] = x[part][i];
    __syncthreads();
    for (int part = 0; part < N; ++part) {
        float sum = 0.0f;
        for (int other = 0; other < 8; ++other) sum += sums[other][part][warp()][lane()];
        unsigned column = 256 * part + 8 * lane() + warp();
        if (column < width) to[column] = sum;
    }
}

// Like `layer_norm_backward`, with blocks of eight warps.
template <int N, class T>
void layer_norm_backward_narrow(T* grad, float* partials, const T* onto, const T* in, const float* stats,
                                const float* gain, u64 rows, unsigned width, unsigned is_centred) {
    Eights<N> own = {width};
    float gain_grads[N][8] = {}, shift_grads[N][8] = {}, share = 1.0f / (float)width;
    for (u64 row = global_thread() / 32; row < rows; row += 8 * gridDim.x) {
        float x[N][8], g[N][8], total = 0.0f, along = 0.0f;
        own.load_from(in + row * width, x);
        own.load_from(grad + row * width, g);
        float mean = stats[2 * row], scale = stats[2 * row + 1];
        for (int part = 0; part < N; ++part) {
            float gains[8];
            load_all(gain + min(own.column(part), width - 8), gains);
            for (int i = 0; i < 8; ++i) {
                x[part][i] -= mean;
                gain_grads[part][i] = fmaf(g[part][i], x[part][i] * scale, gain_grads[part][i]);
                shift_grads[part][i] += g[part][i];
                g[part][i] *= gains[i];
                total += g[part][i];
                along = fmaf(g[part][i], x[part][i], along);
            }
        }
        total = is_centred ? warp_sum(total) * share : 0.0f;
        float slope = warp_sum(along) * share * scale * scale;
        for (int part = 0; part < N; ++part) {
            if (!own.has(part)) continue;
            u64 at = row * width + own.column(part);
            for (int i = 0; i < 8; ++i) g[part][i] = scale * fmaf(x[part][i], -slope, g[part][i] - total);
            if (onto) {
                float more[8];
                load_all(onto + at, more);
                for (int i = 0; i < 8; ++i) g[part][i] = rounded<T>(g[part][i]) + more[i];
            }
            store_all(grad + at, g[part]);
        }
    }
    float* to = partials + (u64)blockIdx.x * 2 * width;
    sum_of_warps(to, gain_grads, width);
    sum_of_warps(to + width, shift_grads, width);
}

// Two blocks fit on a multiprocessor where the registers allow it without going to memory.
#define MAKE_EIGHTS(N, T, SUFFIX)                                                                    \
    extern "C" __global__ void __launch_bounds__(256, N + sizeof(T) / 4 < 4 ? 2 : 1)                 \
        layer_norm_backward_narrow_##N##SUFFIX(T* grad, float* partials, const T* onto,              \
                                               const T* in, const float* stats, const float* gain,   \
                                               u64 rows, unsigned width, unsigned is_centred) {      \
        layer_norm_backward_narrow<N>(grad, partials, onto, in, stats, gain, rows, width,            \
                                      is_centred);                                                   \
    }
#define MAKE(T, SUFFIX)                                                                              \
    MAKE_EIGHTS(1, T, SUFFIX) MAKE_EIGHTS(2, T, SUFFIX) MAKE_EIGHTS(3, T, SUFFIX) MAKE_EIGHTS(4, T, SUFFIX)
F32_AND_BF16(MAKE)
#undef MAKE
#undef MAKE_EIGHTS
