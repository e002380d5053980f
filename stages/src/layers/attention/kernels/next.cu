// Attention of the next tokens of a text, which see the keys and values of the tokens before them.

namespace attention {

// A block has one query head of one new token. Its warps take the keys in turn. Each has its own largest score,
// sum of exponentials, and sum of values. At the end the block puts these together in the order of the warps.
template <class T>
__forceinline__ void next(T *out, const T *qkv, const T *kept, const Sizes &sizes, unsigned past, float scale) {
    const unsigned token = blockIdx.x, head = blockIdx.y, warps = blockDim.x / 32;
    const unsigned width = sizes.width, last = past + token;
    const u64 row = (u64)2 * sizes.heads.key_value * width;
    const T *keys = kept + (u64)(head / sizes.heads.group()) * width, *values = keys + row / 2;
    float *query = (float *)dynamic_shared(), *sums = query + width, *sum = sums + warp() * width,
          *largest_of = sums + warps * width, *total_of = largest_of + warps;
    for (unsigned i = threadIdx.x; i < width; i += blockDim.x)
        query[i] = scale * load(qkv + sizes.query(token, head) + i);
    clear_row(sum, width);
    __syncthreads();
    float largest = minus_infinity(), total = 0;
    for (unsigned key = sizes.heads.first_key(last) + warp(); key <= last; key += warps) {
        const float before = largest, score = product_of_rows(query, keys + key * row, width);
        largest = fmaxf(before, score);
        const float correction = expf(before - largest), share = expf(score - largest);
        total = total * correction + share;
        for (unsigned i = lane(); i < width; i += 32)
            sum[i] = sum[i] * correction + share * load(values + key * row + i);
    }
    if (lane() == 0) {
        largest_of[warp()] = largest;
        total_of[warp()] = total;
    }
    __syncthreads();
    float most = minus_infinity(), all = 0;
    for (unsigned i = 0; i < warps; i++)
        most = fmaxf(most, largest_of[i]);
    for (unsigned i = 0; i < warps; i++)
        all += total_of[i] * expf(largest_of[i] - most);
    for (unsigned i = threadIdx.x; i < width; i += blockDim.x) {
        float whole = 0;
        for (unsigned other = 0; other < warps; other++)
            whole += sums[other * width + i] * expf(largest_of[other] - most);
        store(out + sizes.output(token, head) + i, whole / all);
    }
}

} // namespace attention

// Kernels for f32 and bf16 (type T). Shapes: out `[time, query * width]`, qkv `[time, vectors * width]`, as
// in attention_any.cu with one sequence; kept `[past + time, 2 * key_value * width]`: all keys of a token,
// then its values.
//
// attention_keep copies the keys and values of qkv, `count` numbers, to the rows of kept from the given address
// on. Of a row of `row` numbers it leaves out the first `skip`. Grid: a thread for each number.
//
// attention_next writes out. The rows of kept that belong to qkv must have been copied. A query sees `window` keys
// at most. Grid: [time, query heads], whole warps in a block. Dynamic shared memory: 4 * width bytes, and
// 4 * width + 8 for each warp.
#define ATTENTION_NEXT(T, NAME)                                                                              \
    extern "C" __global__ void __launch_bounds__(256)                                                        \
        attention_keep##NAME(T *kept, const T *qkv, u64 count, unsigned row, unsigned skip) {                \
        const u64 index = global_thread();                                                                   \
        const unsigned width = row - skip;                                                                   \
        if (index < count)                                                                                   \
            kept[index] = qkv[index / width * row + skip + index % width];                                   \
    }                                                                                                        \
    extern "C" __global__ void __launch_bounds__(256)                                                        \
        attention_next##NAME(                                                                                \
            T *out, const T *qkv, const T *kept, unsigned past, unsigned time, unsigned query,               \
            unsigned key_value, unsigned width, unsigned window, float scale) {                              \
        const attention::Sizes sizes = {{time, query, key_value, window}, 1, width};                         \
        attention::next(out, qkv, kept, sizes, past, scale);                                                 \
    }

F32_AND_BF16(ATTENTION_NEXT)
