// Norms of rows of at most 4096 numbers: LayerNorm, Ba, Kiros and Hinton, "Layer normalization" (2016), and
// RMSNorm, Zhang and Sennrich, "Root mean square layer normalization" (2019), which has no shift and does not
// centre rows: their mean counts as 0. The formulas are the same as on the CPU.
//
// lanes_of(width) threads (whole warps) share a row, and each has eight columns in registers. A block works
// on as many rows at once as it has such groups of threads. Then it moves on by gridDim.x times as many rows.

inline unsigned lanes_of(unsigned width) { return (width + 255) / 256 * 32; }

// Adds up each of N numbers over the threads of a row. All threads of a block must call it together. `turn`
// alternates between 0 and 1.
template <int N> void row_sums(float (&x)[N], unsigned lanes, unsigned& turn) {
    __shared__ float sums[2][N][16];
    for (int n = 0; n < N; ++n) {
        x[n] = warp_sum(x[n]);
        if (lane() == 0) sums[turn][n][warp()] = x[n];
    }
    __syncthreads();
    unsigned warps = lanes / 32, first = warp() / warps * warps;
    for (int n = 0; n < N; ++n) {
        x[n] = 0.0f;
        for (unsigned i = 0; i < warps; ++i) x[n] += sums[turn][n][first + i];
    }
    turn ^= 1;  // The next call uses the other half, so a slow reader of this one loses nothing.
}

// The eight columns of a thread.
struct Columns {
    unsigned first, count, group, groups;

    Columns(unsigned width, unsigned lanes) {
        first = threadIdx.x % lanes * 8;
        count = some_of_8(first, width);
        group = threadIdx.x / lanes;
        groups = blockDim.x / lanes;
    }
};

// out = (in - mean) * scale * gain + shift, each [rows, width]; gain and shift are [width]. Mean and scale
// (the reciprocal standard deviation) are read from stats[rows, 2] with AGAIN; otherwise they are computed
// and written there. If `shift` is null, rows are neither centred nor shifted.
template <bool AGAIN, class T>
void layer_norm(T* out, float* stats, const T* in, const float* gain, const float* shift, u64 rows,
                unsigned width, float epsilon) {
    unsigned lanes = lanes_of(width);
    Columns own(width, lanes);
    bool whole = width % 8 == 0 && is_aligned(out) && is_aligned(in);
    float gains[8], shifts[8];
    load_some(gain + own.first, own.count, width % 8 == 0, gains);
    load_some(shift + own.first, shift ? own.count : 0, width % 8 == 0, shifts);
    float share = 1.0f / (float)width;
    unsigned turn = 0;
    for (u64 first = (u64)blockIdx.x * own.groups; first < rows; first += (u64)gridDim.x * own.groups) {
        u64 row = first + own.group;
        unsigned count = row < rows ? own.count : 0;
        float x[8], mean[1] = {0.0f}, scale[1] = {0.0f};
        load_some(in + row * width + own.first, count, whole, x);
        if (AGAIN) {
            if (row < rows) mean[0] = stats[2 * row], scale[0] = stats[2 * row + 1];
        } else {
            if (shift) {
                for (int i = 0; i < 8; ++i) mean[0] += x[i];
                row_sums(mean, lanes, turn);
                mean[0] /= (float)width;  // Exact for rows of one number.
            }
            for (int i = 0; i < 8; ++i)
                if (i < count) scale[0] = fmaf(x[i] - mean[0], x[i] - mean[0], scale[0]);
            row_sums(scale, lanes, turn);
            scale[0] = 1.0f / sqrtf(fmaf(scale[0], share, epsilon));
            if (own.first == 0 && row < rows) stats[2 * row] = mean[0], stats[2 * row + 1] = scale[0];
        }
        for (int i = 0; i < 8; ++i) x[i] = fmaf((x[i] - mean[0]) * scale[0], gains[i], shifts[i]);
        store_some(out + row * width + own.first, count, whole, x);
    }
}

#define MAKE(T, SUFFIX)                                                                              \
    extern "C" __global__ void __launch_bounds__(512)                                                \
        layer_norm_forward##SUFFIX(T* out, float* stats, const T* in, const float* gain,             \
                                   const float* shift, u64 rows, unsigned width, float epsilon) {    \
        layer_norm<false>(out, stats, in, gain, shift, rows, width, epsilon);                        \
    }                                                                                                \
    extern "C" __global__ void __launch_bounds__(512)                                                \
        layer_norm_forward_again##SUFFIX(T* out, float* stats, const T* in, const float* gain,       \
                                         const float* shift, u64 rows, unsigned width) {             \
        layer_norm<true>(out, stats, in, gain, shift, rows, width, 0.0f);                            \
    }
F32_AND_BF16(MAKE)
#undef MAKE

// Turns the output gradient `grad` into the input gradient. If `onto` is not null, it is added after the
// gradient is rounded. These and the input are [rows, width], with stats[rows, 2] and gain[width]. Each block
// sums the gradients of gain and shift over its rows: partials[gridDim.x, 2, width]. If rows are not centred,
// only the gradients of the gain mean something.
template <class T>
void layer_norm_backward(T* grad, float* partials, const T* onto, const T* in, const float* stats,
                         const float* gain, u64 rows, unsigned width, unsigned is_centred) {
    __shared__ float folded[16][512];
    unsigned lanes = lanes_of(width);
    Columns own(width, lanes);
    bool whole = width % 8 == 0 && is_aligned(grad) && is_aligned(onto) && is_aligned(in);
    float gains[8], gain_grads[8] = {}, shift_grads[8] = {};
    load_some(gain + own.first, own.count, false, gains);
    float share = 1.0f / (float)width;
    unsigned turn = 0;
    for (u64 first = (u64)blockIdx.x * own.groups; first < rows; first += (u64)gridDim.x * own.groups) {
        u64 row = first + own.group, at = row * width + own.first;
        unsigned count = row < rows ? own.count : 0;
        float mean = row < rows ? stats[2 * row] : 0.0f, scale = row < rows ? stats[2 * row + 1] : 0.0f;
        float x[8], g[8], sums[2] = {};
        load_some(in + at, count, whole, x);
        load_some(grad + at, count, whole, g);
        for (int i = 0; i < 8; ++i) {
            x[i] -= mean;
            gain_grads[i] = fmaf(g[i], x[i] * scale, gain_grads[i]);
            shift_grads[i] += g[i];
            g[i] *= gains[i];
            sums[0] += g[i];
            sums[1] = fmaf(g[i], x[i], sums[1]);
        }
        row_sums(sums, lanes, turn);
        float total = is_centred ? sums[0] * share : 0.0f, slope = sums[1] * share * scale * scale;
        for (int i = 0; i < 8; ++i) g[i] = scale * fmaf(x[i], -slope, g[i] - total);
        if (onto) {
            load_some(onto + at, count, whole, x);
            for (int i = 0; i < 8; ++i) g[i] = rounded<T>(g[i]) + x[i];
        }
        store_some(grad + at, count, whole, g);
    }
    // Adds up the rows that the block had at once, in order.
    for (unsigned group = 1; group < own.groups; ++group) {
        __syncthreads();
        for (int i = 0; i < 8; ++i)
            if (own.group == group) {
                folded[i][own.first / 8] = gain_grads[i];
                folded[i + 8][own.first / 8] = shift_grads[i];
            }
        __syncthreads();
        for (int i = 0; i < 8; ++i)
            if (own.group == 0) {
                gain_grads[i] += folded[i][own.first / 8];
                shift_grads[i] += folded[i + 8][own.first / 8];
            }
    }
    if (own.group > 0) return;
    float* to = partials + (u64)blockIdx.x * 2 * width + own.first;
    store_some(to, own.count, false, gain_grads);
    store_some(to + width, own.count, false, shift_grads);
}

#define MAKE(T, SUFFIX)                                                                              \
    extern "C" __global__ void __launch_bounds__(512)                                                \
        layer_norm_backward##SUFFIX(T* grad, float* partials, const T* onto, const T* in,            \
                                    const float* stats, const float* gain, u64 rows,                 \
                                    unsigned width, unsigned is_centred) {                           \
        layer_norm_backward(grad, partials, onto, in, stats, gain, rows, width, is_centred);         \
    }
F32_AND_BF16(MAKE)
#undef MAKE
