// Fused causal attention, backward: Dao, "FlashAttention-2" (2023), algorithm 2. It is split into two
// kernels, so that one warp makes each sum, in one order. In the first, a block of keys loops over the
// queries and makes the gradients of keys and values. In the second, a block of queries loops over the keys
// and makes the gradient of queries.
//
// With p = exp(scale * q k - lse), and delta = sum(grad * out) for each row:
//   dv = sum over queries of p * grad; ds = p * (grad v - delta)
//   dk = scale * sum over queries of ds * q; dq = scale * sum over keys of ds * k

namespace attention {

// The sizes of the kernel for keys and values. It works on NS x 8 queries at a time, out of a tile of
// QUERIES.
template <int WIDTH> struct BackwardKeys {
    static constexpr int MS = WIDTH == 64 ? 2 : 1, NS = WIDTH > 128 ? 2 : 4;
    static constexpr unsigned KEYS = WARPS * MS * 16, QUERIES = WIDTH > 128 ? 16 : 64;
    static constexpr unsigned VALUES = KEYS * ROOM<WIDTH> * 2, STAGES = 2 * VALUES;
    // Offsets within a stage of the pipeline of copies: queries, output gradients, lse, delta.
    static constexpr unsigned GRADS = QUERIES * ROOM<WIDTH> * 2, LSE = 2 * GRADS, DELTA = LSE + QUERIES * 4,
        STAGE_BYTES = (DELTA + QUERIES * 4 + 511) / 512 * 512;
};

// What backward reads and writes.
struct Backward {
    bf16 *qkv_grad;
    const bf16 *qkv, *grad;
    const float *lse, *delta;
    Heads heads;

    // The number of rows of lse and delta before the rows of a query head.
    __forceinline__ u64 row(unsigned head) const {
        return (u64)head * heads.time;
    }
};

// The same for the block's document only.
template <int WIDTH, bool APART> __forceinline__ Backward of_document(Backward it, const unsigned *documents) {
    const Document<APART> own(documents, it.heads.time);
    const u64 input = own.first * it.heads.vectors() * WIDTH, sums = own.first * it.heads.query;
    it.heads.time = own.rows;
    it.qkv_grad += input;
    it.qkv += input;
    it.grad += sums * WIDTH;
    it.lse += sums;
    it.delta += sums;
    return it;
}

// Starts to copy a stage: tiles of a head's queries and output gradients, with their lse and delta. After the
// last query it writes zeros, which add nothing.
template <int WIDTH>
__forceinline__ void copy_queries(const Backward &it, unsigned stage, unsigned head, unsigned first) {
    using Its = BackwardKeys<WIDTH>;
    const unsigned time = it.heads.time;
    copy_tiles<Its::QUERIES, WIDTH>(stage, rows_of<WIDTH>(it.qkv, it.heads.vectors(), head, time), first);
    copy_tiles<Its::QUERIES, WIDTH>(stage + Its::GRADS, rows_of<WIDTH>(it.grad, it.heads.query, head, time),
                                    first);
    if (2 * Its::QUERIES < THREADS && threadIdx.x >= 2 * Its::QUERIES)
        return;
    const unsigned own = threadIdx.x % Its::QUERIES;
    const bool there = first + own < time;
    const float *numbers =
        (threadIdx.x < Its::QUERIES ? it.lse : it.delta) + it.row(head) + (there ? first + own : 0);
    cp_async_4(stage + Its::LSE + threadIdx.x * 4, numbers, there ? 4 : 0);
}

// The numbers of a lane's two columns.
__forceinline__ float2 pair_at(unsigned numbers, unsigned column) {
    return *(const float2 *)(dynamic_shared() + numbers + (column + lane() % 4 * 2) * 4);
}

// Turns scores into probabilities. Rows are keys, columns are queries.
template <int WIDTH, int MS, int NS>
__forceinline__ void probabilities_of_keys(float (&scores)[MS][NS][4], unsigned lse) {
#pragma unroll
    for (int n = 0; n < NS; n++) {
        const float2 pair = pair_at(lse, n * 8);
        const float lse_2[2] = {pair.x * LOG2_E, pair.y * LOG2_E};
#pragma unroll
        for (int m = 0; m < MS; m++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                scores[m][n][i] = exp2_fast(scores[m][n][i] * SCALE_2<WIDTH> - lse_2[i % 2]);
    }
}

// probabilities *= gradients - delta. Rows are keys, columns are queries.
template <int MS, int NS>
__forceinline__ void scores_grad_of_keys(float (&probabilities)[MS][NS][4], const float (&grads)[MS][NS][4],
                                         unsigned delta) {
#pragma unroll
    for (int n = 0; n < NS; n++) {
        const float2 pair = pair_at(delta, n * 8);
#pragma unroll
        for (int m = 0; m < MS; m++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                probabilities[m][n][i] *= grads[m][n][i] - (i % 2 ? pair.y : pair.x);
    }
}

// Makes the gradients of keys, of values, or of both. Registers do not hold both for width 256.
template <int WIDTH, bool OF_KEYS, bool OF_VALUES> __forceinline__ void backward_keys(const Backward &it) {
    using Its = BackwardKeys<WIDTH>;
    const unsigned first = blockIdx.x * Its::KEYS, row = warp() * Its::MS * 16, own = first + row;
    const Heads &heads = it.heads;
    if (first >= heads.time)
        return;
    // The queries that see one of the keys.
    const unsigned end = min(heads.time, first + Its::KEYS - 1 + heads.window);
    const unsigned last_head = (blockIdx.y + 1) * heads.group() - 1;
    copy_tiles<Its::KEYS, WIDTH, 2>(0, keys_of<WIDTH>(it.qkv, heads, blockIdx.y), first, heads.key_value);
    unsigned head = blockIdx.y * heads.group(), query = first, stage = Its::STAGES, next = stage + Its::STAGE_BYTES;
    copy_queries<WIDTH>(it, stage, head, query);

    const Left<WIDTH, Its::MS, false> keys(0, row), values(Its::VALUES, row);
    float keys_grad[Its::MS][WIDTH / 8][4] = {}, values_grad[Its::MS][WIDTH / 8][4] = {};
    while (true) {
        cp_async_wait_all();
        // After this barrier the stage is copied, and all threads are done with the previous stage. The next
        // copy overwrites that one.
        __syncthreads();
        const bool more_queries = query + Its::QUERIES < end, more = more_queries || head < last_head;
        const unsigned next_query = more_queries ? query + Its::QUERIES : first;
        const unsigned next_head = more_queries ? head : head + 1;
        if (more)
            copy_queries<WIDTH>(it, next, next_head, next_query);
#pragma unroll 1
        for (unsigned part = 0; part < Its::QUERIES; part += Its::NS * 8) {
            // The position of the warp's first key minus the position of the first query.
            const int ahead = (int)own - (int)(query + part), window = heads.window;
            if (ahead - Its::NS * 8 >= 0 || ahead + Its::MS * 16 - 1 <= -window)
                continue;
            float scores[Its::MS][Its::NS][4], grads[Its::MS][Its::NS][4];
            turned_product(scores, keys, stage, part);
            if (ahead + Its::MS * 16 - 1 > 0 || ahead - Its::NS * 8 < -window)
                hide<true>(scores, ahead, window);
            probabilities_of_keys<WIDTH>(scores, stage + Its::LSE + part * 4);
            if (OF_VALUES)
                add_product<WIDTH>(values_grad, scores, stage + Its::GRADS, part);
            if (!OF_KEYS)
                continue;
            turned_product(grads, values, stage + Its::GRADS, part);
            scores_grad_of_keys(scores, grads, stage + Its::DELTA + part * 4);
            add_product<WIDTH>(keys_grad, scores, stage, part);
        }
        if (!more)
            break;
        query = next_query;
        head = next_head;
        const unsigned done = stage;
        stage = next;
        next = done;
    }
    float factors[Its::MS][2], ones[Its::MS][2];
    for (int m = 0; m < Its::MS; m++)
        for (int half = 0; half < 2; half++) {
            factors[m][half] = SCALE<WIDTH>;
            ones[m][half] = 1;
        }
    const Rows<bf16> to = keys_of<WIDTH>(it.qkv_grad, heads, blockIdx.y);
    const Rows<bf16> to_values = {to.first + heads.key_value * WIDTH, to.stride, to.count};
    if (OF_KEYS)
        store_rows<WIDTH>(to, own, keys_grad, factors, 0, row);
    if (OF_VALUES)
        store_rows<WIDTH>(to_values, own, values_grad, ones, Its::VALUES, row);
}

// The sizes of the kernel for queries. It works on NS x 8 keys at a time, out of a tile of KEYS.
template <int WIDTH> struct BackwardQueries {
    static constexpr int MS = WIDTH > 128 ? 1 : 2, NS = WIDTH > 128 ? 2 : 4;
    // Registers can hold the queries for width 64, but not for more.
    static constexpr bool HELD = WIDTH == 64;
    static constexpr unsigned QUERIES = WARPS * MS * 16, KEYS = WIDTH == 64 ? 64 : WIDTH > 128 ? 16 : 32;
    static constexpr unsigned GRADS = QUERIES * ROOM<WIDTH> * 2, STAGES = 2 * GRADS,
        KEYS_BYTES = KEYS * ROOM<WIDTH> * 2;
};

// The numbers of a lane's rows. Zeros after the last row.
template <int MS>
__forceinline__ void load_of_rows(float (&numbers)[MS][2], const float *from, unsigned first, unsigned time) {
#pragma unroll
    for (int m = 0; m < MS; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const unsigned row = first + m * 16 + half * 8 + lane() / 4;
            numbers[m][half] = row < time ? from[row] : 0;
        }
}

template <int WIDTH> __forceinline__ void backward_queries(const Backward &it) {
    using Its = BackwardQueries<WIDTH>;
    // Starts with the longest rows.
    const unsigned first = (gridDim.x - 1 - blockIdx.x) * Its::QUERIES;
    const unsigned row = warp() * Its::MS * 16, own = first + row;
    const Heads &heads = it.heads;
    if (first >= heads.time)
        return;
    const unsigned begin = heads.first_key(first) / Its::KEYS * Its::KEYS,
        end = min(first + Its::QUERIES, heads.time);
    const auto stage_of =
        [](unsigned key) { return Its::STAGES + key / Its::KEYS % 2 * (2 * Its::KEYS_BYTES); };
    const Rows<const bf16> keys = keys_of<WIDTH>(it.qkv, heads, blockIdx.y / heads.group());
    const auto copy = [&](unsigned key) {
        copy_tiles<Its::KEYS, WIDTH, 2>(stage_of(key), keys, key, heads.key_value);
    };
    copy_tiles<Its::QUERIES, WIDTH>(0, rows_of<WIDTH>(it.qkv, heads.vectors(), blockIdx.y, heads.time), first);
    copy_tiles<Its::QUERIES, WIDTH>(Its::GRADS, rows_of<WIDTH>(it.grad, heads.query, blockIdx.y, heads.time),
                                    first);
    copy(begin);

    Left<WIDTH, Its::MS, Its::HELD> queries(0, row);
    const Left<WIDTH, Its::MS, false> out_grads(Its::GRADS, row);
    float lse[Its::MS][2], delta[Its::MS][2], sum[Its::MS][WIDTH / 8][4] = {};
    load_of_rows(lse, it.lse + it.row(blockIdx.y), own, heads.time);
    load_of_rows(delta, it.delta + it.row(blockIdx.y), own, heads.time);
    for (unsigned key = begin; key < end; key += Its::KEYS) {
        cp_async_wait_all();
        // After this barrier the stage is copied, and all threads are done with the previous stage. The next
        // copy overwrites that one.
        __syncthreads();
        if (key + Its::KEYS < end)
            copy(key + Its::KEYS);
        if (key == begin)
            queries.hold();
        const unsigned stage = stage_of(key);
#pragma unroll 1
        for (unsigned part = 0; part < Its::KEYS; part += Its::NS * 8) {
            // The position of the warp's first query minus the position of the first key.
            const int ahead = (int)own - (int)(key + part), window = heads.window;
            if (ahead + Its::MS * 16 <= 0 || ahead - Its::NS * 8 >= window - 1)
                continue;
            float scores[Its::MS][Its::NS][4], grads[Its::MS][Its::NS][4];
            turned_product(scores, queries, stage, part);
            turned_product(grads, out_grads, stage + Its::KEYS_BYTES, part);
            if (ahead < Its::NS * 8 - 1 || ahead + Its::MS * 16 > window)
                hide<false>(scores, ahead, window);
#pragma unroll
            for (int m = 0; m < Its::MS; m++)
#pragma unroll
                for (int n = 0; n < Its::NS; n++)
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        const float probability =
                            exp2_fast(scores[m][n][i] * SCALE_2<WIDTH> - lse[m][i / 2] * LOG2_E);
                        scores[m][n][i] = probability * (grads[m][n][i] - delta[m][i / 2]);
                    }
            add_product<WIDTH>(sum, scores, stage, part);
        }
    }
    float factors[Its::MS][2];
    for (int m = 0; m < Its::MS; m++)
        for (int half = 0; half < 2; half++)
            factors[m][half] = SCALE<WIDTH>;
    store_rows<WIDTH>(rows_of<WIDTH>(it.qkv_grad, heads.vectors(), blockIdx.y, heads.time), own, sum, factors, 0,
                      row);
}

} // namespace attention

#define ATTENTION_BACKWARD(WIDTH, SHORT, NAME, APART, ...)                                               \
    extern "C" __global__ void __launch_bounds__(128, 2) attention_backward_##SHORT##_##NAME##_bf16(     \
        bf16 *qkv_grad, const bf16 *qkv, const bf16 *grad, const float *lse, const float *delta,         \
        unsigned time, unsigned query, unsigned key_value, unsigned window, const unsigned *documents) { \
        const attention::Backward all = {qkv_grad, qkv, grad, lse, delta, {time, query, key_value, window}}; \
        attention::__VA_ARGS__(attention::of_document<WIDTH, APART>(all, documents));                    \
    }
#define ATTENTION_BACKWARDS(WIDTH, SHORT, ...)                                                           \
    ATTENTION_BACKWARD(WIDTH, SHORT, WIDTH, false, __VA_ARGS__)                                          \
    ATTENTION_BACKWARD(WIDTH, SHORT, apart_##WIDTH, true, __VA_ARGS__)

// The gradients of keys and values, for heads of these widths: sums over the query heads that share
// them, in their order. Writes their parts of qkv_grad `[batch, time, vectors * width]`: the vectors are
// `query` queries, `key_value` keys and as many values. Reads qkv of that shape, grad `[batch, time, query
// * width]`, lse and delta f32 `[batch, query, time]`. A query sees `window` keys at most, from 1 to
// `time`. Addresses of bf16 must be multiples of 16 bytes. Grid: x is ceil(time / 128) for width 64 and
// ceil(time / 64) for others, y is `key_value`, z is batch. A block has 128 threads and 66560 (width 64) or
// 99328 bytes of dynamic shared memory. `apart` is as in attention_forward.
ATTENTION_BACKWARDS(64, kv, backward_keys<64, true, true>)
ATTENTION_BACKWARDS(80, kv, backward_keys<80, true, true>)
ATTENTION_BACKWARDS(96, kv, backward_keys<96, true, true>)
ATTENTION_BACKWARDS(112, kv, backward_keys<112, true, true>)
ATTENTION_BACKWARDS(128, kv, backward_keys<128, true, true>)
ATTENTION_BACKWARDS(256, k, backward_keys<256, true, false>)
ATTENTION_BACKWARDS(256, v, backward_keys<256, false, true>)

// The gradient of queries, in the same way. Grid: x is ceil(time / 128), of width 256 ceil(time / 64), y is
// `query`, z is batch. A block has 128 threads and 64 KiB (width 64) or 96 KiB (more) of dynamic shared
// memory.
ATTENTION_BACKWARDS(64, q, backward_queries<64>)
ATTENTION_BACKWARDS(80, q, backward_queries<80>)
ATTENTION_BACKWARDS(96, q, backward_queries<96>)
ATTENTION_BACKWARDS(112, q, backward_queries<112>)
ATTENTION_BACKWARDS(128, q, backward_queries<128>)
ATTENTION_BACKWARDS(256, q, backward_queries<256>)
