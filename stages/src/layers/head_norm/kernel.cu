// RMSNorm of the heads of queries and keys, which lie side by side in the row of a token, before the values.
// Some lanes of a warp, a power of two, share a head. A lane works on eight columns at a time, 8 * lanes
// apart.

// The lanes of a head, as threads of a block, and the rows of tokens.
struct HeadRows {
    u64 tokens;
    unsigned queries, keys, width, lanes;

    unsigned group() const { return threadIdx.x / lanes; }
    unsigned groups() const { return blockDim.x / lanes; }
    unsigned first() const { return 8 * (threadIdx.x % lanes); }
    unsigned normed() const { return queries + keys; }
    u64 row() const { return (u64)(queries + 2 * keys) * width; }
};

// out[tokens, queries + 2 keys, width] = in * scale * gain, with the gain of queries or the gain of keys,
// [width] each. scale = 1 / sqrt(mean(in^2) + epsilon) of the head goes to stats[tokens, queries + keys, 2],
// after a 0. Values are copied.
template <class T>
void head_norm_forward(T* out, float* stats, const T* in, const float* query_gain, const float* key_gain,
                       HeadRows rows, float epsilon) {
    unsigned heads = rows.queries + 2 * rows.keys;
    u64 at = (u64)blockIdx.x * rows.groups() + rows.group(), token = at / heads;
    unsigned head = at % heads;
    bool has = token < rows.tokens, is_normed = head < rows.normed();
    bool whole = rows.width % 8 == 0 && is_aligned(out) && is_aligned(in);
    const float* gain = head < rows.queries ? query_gain : key_gain;
    in += at * rows.width;
    out += at * rows.width;
    float sum = 0.0f;
    for (unsigned column = rows.first(); column < rows.width; column += 8 * rows.lanes) {
        float x[8];
        load_some(in + column, has ? some_of_8(column, rows.width) : 0, whole, x);
        for (int i = 0; i < 8; ++i) sum = fmaf(x[i], x[i], sum);
    }
    float scale = 1.0f / sqrtf(warp_sum(sum, rows.lanes) / (float)rows.width + epsilon);
    if (has && is_normed && rows.first() == 0) {
        float* to = stats + 2 * (token * rows.normed() + head);
        to[0] = 0.0f, to[1] = scale;
    }
    for (unsigned column = rows.first(); column < rows.width; column += 8 * rows.lanes) {
        unsigned count = has ? some_of_8(column, rows.width) : 0;
        float x[8], gains[8];
        load_some(in + column, count, whole, x);
        load_some(gain + column, count, whole, gains);
        for (int i = 0; i < 8; ++i)
            if (is_normed) x[i] = x[i] * scale * gains[i];
        store_some(out + column, count, whole, x);
    }
}

// Turns grad[tokens, queries + 2 keys, width] into the input gradient. Each block sums the gradients of both
// gains over its heads: partials[gridDim.x, 2, width]. Dynamic shared memory: `float` [groups, 2, width].
template <class T>
void head_norm_backward(T* grad, float* partials, const T* in, const float* stats, const float* query_gain,
                        const float* key_gain, HeadRows rows) {
    float* all = (float*)dynamic_shared();
    float* own = all + 2 * rows.width * rows.group();
    for (unsigned i = threadIdx.x; i < 2 * rows.width * rows.groups(); i += blockDim.x) all[i] = 0.0f;
    __syncthreads();
    bool whole = rows.width % 8 == 0 && is_aligned(grad) && is_aligned(in);
    u64 heads = rows.tokens * rows.normed(), step = (u64)gridDim.x * rows.groups();
    for (u64 first = (u64)blockIdx.x * rows.groups(); first < heads; first += step) {
        u64 at = first + rows.group(), from = at / rows.normed() * rows.row();
        unsigned head = at % rows.normed();
        bool has = at < heads, is_key = head >= rows.queries;
        const float* gain = is_key ? key_gain : query_gain;
        float* sums = own + (is_key ? rows.width : 0);
        float scale = has ? stats[2 * at + 1] : 0.0f, along = 0.0f;
        from += (u64)head * rows.width;
        for (unsigned column = rows.first(); column < rows.width; column += 8 * rows.lanes) {
            unsigned count = has ? some_of_8(column, rows.width) : 0;
            float g[8], x[8], gains[8], sum[8];
            load_both(grad + from + column, count, g, in + from + column, count, x, whole);
            load_some(gain + column, count, whole, gains);
            load_some(sums + column, count, whole, sum);
            for (int i = 0; i < 8; ++i) {
                sum[i] = fmaf(g[i], x[i] * scale, sum[i]);
                along = fmaf(g[i] * gains[i], x[i], along);
            }
            store_some(sums + column, count, whole, sum);
        }
        float slope = warp_sum(along, rows.lanes) / (float)rows.width * scale * scale;
        for (unsigned column = rows.first(); column < rows.width; column += 8 * rows.lanes) {
            unsigned count = has ? some_of_8(column, rows.width) : 0;
            float g[8], x[8], gains[8];
            load_both(grad + from + column, count, g, in + from + column, count, x, whole);
            load_some(gain + column, count, whole, gains);
            for (int i = 0; i < 8; ++i) g[i] = scale * fmaf(x[i], -slope, g[i] * gains[i]);
            store_some(grad + from + column, count, whole, g);
        }
    }
    __syncthreads();
    for (unsigned i = threadIdx.x; i < 2 * rows.width; i += blockDim.x) {
        float sum = 0.0f;
        for (unsigned group = 0; group < rows.groups(); ++group) sum += all[2 * rows.width * group + i];
        partials[(u64)blockIdx.x * 2 * rows.width + i] = sum;
    }
}

#define MAKE(T, SUFFIX)                                                                              \
    extern "C" __global__ void __launch_bounds__(256)                                                \
        head_norm_forward##SUFFIX(T* out, float* stats, const T* in, const float* query_gain,        \
                                  const float* key_gain, u64 tokens, unsigned queries,               \
                                  unsigned keys, unsigned width, unsigned lanes, float epsilon) {    \
        HeadRows rows = {tokens, queries, keys, width, lanes};                                       \
        head_norm_forward(out, stats, in, query_gain, key_gain, rows, epsilon);                      \
    }                                                                                                \
    extern "C" __global__ void __launch_bounds__(256)                                                \
        head_norm_backward##SUFFIX(T* grad, float* partials, const T* in, const float* stats,        \
                                   const float* query_gain, const float* key_gain, u64 tokens,       \
                                   unsigned queries, unsigned keys, unsigned width,                  \
                                   unsigned lanes) {                                                 \
        HeadRows rows = {tokens, queries, keys, width, lanes};                                       \
        head_norm_backward(grad, partials, in, stats, query_gain, key_gain, rows);                   \
    }
F32_AND_BF16(MAKE)
#undef MAKE
