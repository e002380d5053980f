// Norms of rows of at most 8192 numbers: LayerNorm, Ba, Kiros and Hinton, "Layer normalization" (2016), and
// RMSNorm, Zhang and Sennrich, "Root mean square layer normalization" (2019), which has no shift and does not
// centre rows: their mean counts as 0. The formulas are the same as on the CPU.
//
// lanes_of<N>(width) threads (whole warps) share a row, and each has N times eight columns in registers. A
// block works on as many rows at once as it has such groups of threads. Then it moves on by gridDim.x times
// as many rows.

template <int N> unsigned lanes_of(unsigned width) { return (width + 256 * N - 1) / (256 * N) * 32; }

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

// The columns of a thread: N times eight, `apart` from each other.
template <int N> struct Columns {
    unsigned width, lanes, apart, first, group, groups;

    Columns(unsigned width) : width(width) {
        lanes = lanes_of<N>(width);
        apart = 8 * lanes;
        first = threadIdx.x % lanes * 8;
        group = threadIdx.x / lanes;
        groups = blockDim.x / lanes;
    }

    unsigned count(int part) const { return some_of_8(first + part * apart, width); }

    // The columns of a row. Without one, and where columns do not exist, the numbers are 0.
    template <class T> void load_from(const T* row, bool exists, bool whole, float (&x)[N][8]) const {
        for (int part = 0; part < N; ++part)
            load_some(row + first + part * apart, exists ? count(part) : 0, whole, x[part]);
    }
};

// out = (in - mean) * scale * gain + shift, each [rows, width]; gain and shift are [width]. Mean and scale
// (the reciprocal standard deviation) are read from stats[rows, 2] with AGAIN; otherwise they are computed
// and written there. If `shift` is null, rows are neither centred nor shifted.
template <int N, bool AGAIN, class T>
void layer_norm(T* out, float* stats, const T* in, const float* gain, const float* shift, u64 rows,
                unsigned width, float epsilon) {
    Columns<N> own(width);
    bool whole = width % 8 == 0 && is_aligned(out) && is_aligned(in);
    // With N = 2 there are not enough registers to keep these.
    float gains[N][8], shifts[N][8];
    if (N == 1) own.load_from(gain, true, width % 8 == 0, gains);
    if (N == 1) own.load_from(shift, shift, width % 8 == 0, shifts);
    float share = 1.0f / (float)width;
    unsigned turn = 0;
    for (u64 first = (u64)blockIdx.x * own.groups; first < rows; first += (u64)gridDim.x * own.groups) {
        u64 row = first + own.group;
        bool exists = row < rows;
        float x[N][8], mean[1] = {0.0f}, scale[1] = {0.0f};
        own.load_from(in + row * width, exists, whole, x);
        if (AGAIN) {
            if (exists) mean[0] = stats[2 * row], scale[0] = stats[2 * row + 1];
        } else {
            if (shift) {
                for (int part = 0; part < N; ++part)
                    for (int i = 0; i < 8; ++i) mean[0] += x[part][i];
                row_sums(mean, own.lanes, turn);
                mean[0] /= (float)width;  // Exact for rows of one number.
            }
            for (int part = 0; part < N; ++part) {
                unsigned count = exists ? own.count(part) : 0;
                for (int i = 0; i < 8; ++i)
                    if (i < count) scale[0] = fmaf(x[part][i] - mean[0], x[part][i] - mean[0], scale[0]);
            }
            row_sums(scale, own.lanes, turn);
            scale[0] = 1.0f / sqrtf(fmaf(scale[0], share, epsilon));
            if (own.first == 0 && exists) stats[2 * row] = mean[0], stats[2 * row + 1] = scale[0];
        }
        for (int part = 0; part < N; ++part) {
            if (N == 2) {
                unsigned column = own.first + part * own.apart;
                load_some(gain + column, own.count(part), width % 8 == 0, gains[part]);
                load_some(shift + column, shift ? own.count(part) : 0, width % 8 == 0, shifts[part]);
            }
            for (int i = 0; i < 8; ++i)
                x[part][i] = fmaf((x[part][i] - mean[0]) * scale[0], gains[part][i], shifts[part][i]);
            unsigned count = exists ? own.count(part) : 0;
            store_some(out + row * width + own.first + part * own.apart, count, whole, x[part]);
        }
    }
}

#define MAKE_WIDTH(N, NAME, T, SUFFIX)                                                               \
    extern "C" __global__ void __launch_bounds__(512)                                                \
        layer_norm_forward##NAME##SUFFIX(T* out, float* stats, const T* in, const float* gain,       \
                                         const float* shift, u64 rows, unsigned width,               \
                                         float epsilon) {                                            \
        layer_norm<N, false>(out, stats, in, gain, shift, rows, width, epsilon);                     \
    }                                                                                                \
    extern "C" __global__ void __launch_bounds__(512)                                                \
        layer_norm_forward_again##NAME##SUFFIX(T* out, float* stats, const T* in,                    \
                                               const float* gain, const float* shift, u64 rows,      \
                                               unsigned width) {                                     \
        layer_norm<N, true>(out, stats, in, gain, shift, rows, width, 0.0f);                         \
    }
#define MAKE(T, SUFFIX)                                                                              \
    MAKE_WIDTH(1, , T, SUFFIX)                                                                       \
    MAKE_WIDTH(2, _2, T, SUFFIX)
F32_AND_BF16(MAKE)
#undef MAKE
#undef MAKE_WIDTH

// Turns the output gradient `grad` into the input gradient. If `onto` is not null, it is added after the
// gradient is rounded. These and the input are [rows, width], with stats[rows, 2] and gain[width]. Each block
// sums the gradients of gain and shift over its rows: partials[gridDim.x, 2, width]. If rows are not centred,
// only the gradients of the gain mean something.
template <int N, class T>
void layer_norm_backward(T* grad, float* partials, const T* onto, const T* in, const float* stats,
                         const float* gain, u64 rows, unsigned width, unsigned is_centred) {
    Columns<N> own(width);
    bool whole = width % 8 == 0 && is_aligned(grad) && is_aligned(onto) && is_aligned(in);
    float gains[N][8], gain_grads[N][8] = {}, shift_grads[N][8] = {};
    if (N == 1) own.load_from(gain, true, false, gains);
    float share = 1.0f / (float)width;
    unsigned turn = 0;
    for (u64 first = (u64)blockIdx.x * own.groups; first < rows; first += (u64)gridDim.x * own.groups) {
        u64 row = first + own.group;
        bool exists = row < rows;
        float mean = exists ? stats[2 * row] : 0.0f, scale = exists ? stats[2 * row + 1] : 0.0f;
        float x[N][8], g[N][8], sums[2] = {};
        own.load_from(in + row * width, exists, whole, x);
        own.load_from(grad + row * width, exists, whole, g);
        for (int part = 0; part < N; ++part) {
            if (N == 2)
                load_some(gain + own.first + part * own.apart, own.count(part), width % 8 == 0, gains[part]);
            for (int i = 0; i < 8; ++i) {
                x[part][i] -= mean;
                gain_grads[part][i] = fmaf(g[part][i], x[part][i] * scale, gain_grads[part][i]);
                shift_grads[part][i] += g[part][i];
                g[part][i] *= gains[part][i];
                sums[0] += g[part][i];
                sums[1] = fmaf(g[part][i], x[part][i], sums[1]);
            }
        }
        row_sums(sums, own.lanes, turn);
        float total = is_centred ? sums[0] * share : 0.0f, slope = sums[1] * share * scale * scale;
        for (int part = 0; part < N; ++part) {
            u64 at = row * width + own.first + part * own.apart;
            unsigned count = exists ? own.count(part) : 0;
            for (int i = 0; i < 8; ++i) g[part][i] = scale * fmaf(x[part][i], -slope, g[part][i] - total);
            if (onto) {
                load_some(onto + at, count, whole, x[part]);
                for (int i = 0; i < 8; ++i) g[part][i] = rounded<T>(g[part][i]) + x[part][i];
            }
            store_some(grad + at, count, whole, g[part]);
        }
    }
    // Adds up the rows that the block had at once, in order. With N = 2 a row takes more than half of a
    // block.
    if (N == 1) {
        __shared__ float folded[16][512];
        for (unsigned group = 1; group < own.groups; ++group) {
            __syncthreads();
            for (int i = 0; i < 8; ++i)
                if (own.group == group) {
                    folded[i][own.first / 8] = gain_grads[0][i];
                    folded[i + 8][own.first / 8] = shift_grads[0][i];
                }
            __syncthreads();
            for (int i = 0; i < 8; ++i)
                if (own.group == 0) {
                    gain_grads[0][i] += folded[i][own.first / 8];
                    shift_grads[0][i] += folded[i + 8][own.first / 8];
                }
        }
        if (own.group > 0) return;
    }
    for (int part = 0; part < N; ++part) {
        float* to = partials + (u64)blockIdx.x * 2 * width + own.first + part * own.apart;
        store_some(to, own.count(part), false, gain_grads[part]);
        store_some(to + width, own.count(part), false, shift_grads[part]);
    }
}

#define MAKE_WIDTH(N, NAME, T, SUFFIX)                                                               \
    extern "C" __global__ void __launch_bounds__(512)                                                \
        layer_norm_backward##NAME##SUFFIX(T* grad, float* partials, const T* onto, const T* in,      \
                                          const float* stats, const float* gain, u64 rows,           \
                                          unsigned width, unsigned is_centred) {                     \
        layer_norm_backward<N>(grad, partials, onto, in, stats, gain, rows, width, is_centred);      \
    }
#define MAKE(T, SUFFIX)                                                                              \
    MAKE_WIDTH(1, , T, SUFFIX)                                                                       \
    MAKE_WIDTH(2, _2, T, SUFFIX)
F32_AND_BF16(MAKE)
#undef MAKE
#undef MAKE_WIDTH
