// Fused causal attention, forward: Dao, "FlashAttention-2" (2023), algorithm 1, with mma.sync.
//
// A block takes 128 query rows of a head, and each of its warps takes 32 of them. The block loops over tiles
// of 64 keys up to the diagonal. While it works on one tile of keys and values, the next tile is copied. The
// scores of a row stay in registers. For width 256 a block takes 64 rows, a warp takes 16, and a tile has 32
// keys.

namespace attention {

// The sizes of forward for a head width.
template <int WIDTH> struct Forward {
    static constexpr int MS = WIDTH > 128 ? 1 : 2, NS = WIDTH > 128 ? 4 : 8;
    static constexpr unsigned QUERIES = WARPS * MS * 16, KEYS = NS * 8;
    // Registers can hold the queries for width 64, but not for more.
    static constexpr bool HELD = WIDTH == 64;
    static constexpr unsigned KEYS_BYTES = KEYS * ROOM<WIDTH> * 2, STAGES = QUERIES * ROOM<WIDTH> * 2;
};

// The running softmax to base 2, for the rows of a lane: the largest score, and the lane's part of the sum of
// powers.
template <int MS> struct Softmax {
    float largest[MS][2], total[MS][2];
};

// Replaces each score s by 2^(scale * (s - largest)), with the row's largest score so far, and updates the
// softmax. `correct` multiplies the sums of a row. The largest score is finite from the start, so infinity is
// never subtracted from infinity, even where all of a row's keys in a tile are hidden.
template <int WIDTH, int MS, int NS, class Correct>
__forceinline__ void soften(float (&scores)[MS][NS][4], Softmax<MS> &softmax, const Correct &correct) {
#pragma unroll
    for (int m = 0; m < MS; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float largest = scores[m][0][half * 2];
#pragma unroll
            for (int n = 0; n < NS; n++)
                largest = fmaxf(largest, fmaxf(scores[m][n][half * 2], scores[m][n][half * 2 + 1]));
            largest = fmaxf(largest, __shfl_xor_sync(ALL_LANES, largest, 1));
            largest = fmaxf(largest, __shfl_xor_sync(ALL_LANES, largest, 2));
            largest = fmaxf(largest * SCALE_2<WIDTH>, softmax.largest[m][half]);
            const float correction = exp2_fast(softmax.largest[m][half] - largest);
            softmax.largest[m][half] = largest;
            softmax.total[m][half] *= correction;
            correct(m, half, correction);
#pragma unroll
            for (int n = 0; n < NS; n++)
#pragma unroll
                for (int i = half * 2; i < half * 2 + 2; i++) {
                    scores[m][n][i] = exp2_fast(scores[m][n][i] * SCALE_2<WIDTH> - largest);
                    softmax.total[m][half] += scores[m][n][i];
                }
        }
}

// Adds up the totals of the lanes. Writes the logarithms of the rows' sums to lse, and returns the factors of
// the rows.
template <int MS>
__forceinline__ void finish(float (&factors)[MS][2], const Softmax<MS> &softmax, float *lse, unsigned first,
                            unsigned time) {
#pragma unroll
    for (int m = 0; m < MS; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float total = softmax.total[m][half];
            total += __shfl_xor_sync(ALL_LANES, total, 1);
            total += __shfl_xor_sync(ALL_LANES, total, 2);
            factors[m][half] = 1 / total;
            const unsigned row = first + m * 16 + half * 8 + lane() / 4;
            if (lane() % 4 == 0 && row < time)
                lse[row] = softmax.largest[m][half] / LOG2_E + logf(total);
        }
}

template <int WIDTH, bool APART>
__forceinline__ void forward(bf16 *out, float *lse, const bf16 *qkv, const Heads &all, const unsigned *documents) {
    using Its = Forward<WIDTH>;
    const Document<APART> document(documents, all.time);
    // Starts with the longest rows.
    const unsigned first = (gridDim.x - 1 - blockIdx.x) * Its::QUERIES;
    // What is said twice here keeps the registers from spilling, in one way for documents and in another for
    // sequences: `scripts/machine_code.py` shows it.
    const u64 before = APART ? 0 : document.first;
    if (APART) {
        if (first >= document.rows)
            return;
        qkv += document.first * all.vectors() * WIDTH;
    }
    const unsigned row = warp() * Its::MS * 16, own = first + row;
    const unsigned begin = all.first_key(first) / Its::KEYS * Its::KEYS, end = min(first + Its::QUERIES, document.rows);
    Rows<const bf16> keys = keys_of<WIDTH>(qkv, all, blockIdx.y / all.group(), before);
    // No query here sees a later key, and no register has to hold another number.
    if (APART)
        keys.count = end;
    const auto stage_of =
        [](unsigned key) { return Its::STAGES + key / Its::KEYS % 2 * (2 * Its::KEYS_BYTES); };
    const auto copy = [&](unsigned key) { copy_tiles<Its::KEYS, WIDTH, 2>(stage_of(key), keys, key, all.key_value); };
    copy_tiles<Its::QUERIES, WIDTH>(0, rows_of<WIDTH>(qkv, all.vectors(), blockIdx.y, document.rows, before), first);
    copy(begin);

    Left<WIDTH, Its::MS, Its::HELD> queries(0, row);
    float sum[Its::MS][WIDTH / 8][4] = {};
    Softmax<Its::MS> softmax;
    for (int m = 0; m < Its::MS; m++)
        for (int half = 0; half < 2; half++) {
            softmax.largest[m][half] = lowest();
            softmax.total[m][half] = 0;
        }
    for (unsigned key = begin; key < end; key += Its::KEYS) {
        cp_async_wait_all();
        // After this barrier the tile is copied, and all threads are done with the previous tile. The next
        // copy overwrites that one.
        __syncthreads();
        if (key + Its::KEYS < end)
            copy(key + Its::KEYS);
        if (key == begin)
            queries.hold();
        // The position of the warp's first query minus the position of the first key.
        const int ahead = (int)own - (int)key, window = all.window;
        if (ahead + Its::MS * 16 <= 0 || ahead - (int)Its::KEYS >= window - 1)
            continue;
        const unsigned stage = stage_of(key);
        float scores[Its::MS][Its::NS][4];
        turned_product(scores, queries, stage, 0);
        if (ahead < (int)Its::KEYS - 1 || ahead + Its::MS * 16 > window)
            hide<false>(scores, ahead, window);
        soften<WIDTH>(scores, softmax, [&](int m, int half, float correction) {
#pragma unroll
            for (int n = 0; n < WIDTH / 8; n++) {
                sum[m][n][half * 2] *= correction;
                sum[m][n][half * 2 + 1] *= correction;
            }
        });
        add_product<WIDTH>(sum, scores, stage + Its::KEYS_BYTES, 0);
    }
    float factors[Its::MS][2];
    // Read once more: no register holds it meanwhile.
    const Document<APART> same(documents, all.time);
    if (APART) {
        out += same.first * all.query * WIDTH;
        lse += same.first * all.query + (u64)blockIdx.y * same.rows;
    } else {
        lse += ((u64)blockIdx.z * gridDim.y + blockIdx.y) * same.rows;
    }
    finish(factors, softmax, lse, own, same.rows);
    store_rows<WIDTH>(rows_of<WIDTH>(out, all.query, blockIdx.y, same.rows, APART ? 0 : same.first), own, sum, factors, 0,
                      row);
}

} // namespace attention

// Causal attention for heads of these widths. Reads qkv `[batch, time, vectors * width]`: the vectors are
// `query` queries, `key_value` keys and as many values. Writes out `[batch, time, query * width]` and lse f32
// `[batch, query, time]`, the natural logarithm of each row's sum of exponentials. A query sees `window` keys
// at most, from 1 to `time`. Addresses must be multiples of 16 bytes. Grid: x is ceil(time / 128), of width
// 256 ceil(time / 64); y is `query`, z is batch. A block has 128 threads and 48 KiB (width 64) or 96 KiB
// (more) of dynamic shared memory.
//
// `apart`: z is the number of documents, and x is enough for the longest one. Then lse has for each document
// `[query, rows]`, one document after the other.
#define ATTENTION_FORWARD(WIDTH, NAME, APART)                                                            \
    extern "C" __global__ void __launch_bounds__(128, 2) attention_forward_##NAME##_bf16(                \
        bf16 *out, float *lse, const bf16 *qkv, unsigned time, unsigned query, unsigned key_value,       \
        unsigned window, const unsigned *documents) {                                                    \
        attention::forward<WIDTH, APART>(out, lse, qkv, {time, query, key_value, window}, documents);    \
    }
#define ATTENTION_FORWARDS(WIDTH)                                                                        \
    ATTENTION_FORWARD(WIDTH, WIDTH, false)                                                               \
    ATTENTION_FORWARD(WIDTH, apart_##WIDTH, true)
ATTENTION_FORWARDS(64)
ATTENTION_FORWARDS(80)
ATTENTION_FORWARDS(96)
ATTENTION_FORWARDS(112)
ATTENTION_FORWARDS(128)
ATTENTION_FORWARDS(256)
