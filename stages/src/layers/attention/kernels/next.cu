// Attention of the next tokens of a text, which see the keys and values of the tokens before them.
//
// The keys of a text come in parts of PART. A block has a part, the query heads that share keys, and a new
// token: so a token keeps the whole GPU busy, and a key is read once for all heads that share it. A second
// kernel adds up the parts. All sums have one order, which depends only on the place of a key in the text.

namespace attention {

// The keys of a part, and the threads of a block.
const unsigned PART = 256;

// The largest of `count` numbers. All threads of the block get it.
__forceinline__ float largest_of(const float *numbers, unsigned count) {
    return block_max(threadIdx.x < count ? numbers[threadIdx.x] : minus_infinity());
}

// sums[HEADS][columns of this thread] += the sum of rows `begin` to `end`, each times its number in
// shares[HEADS][PART]. The columns are eight of the row; the threads with the same columns take the rows in
// turn. `apart`: from row to row.
template <unsigned HEADS, class T>
__forceinline__ void add_rows(float (&sums)[HEADS][8], const float *shares, const T *rows, u64 apart,
                              unsigned begin, unsigned end, unsigned width) {
    const unsigned eights = (width + 7) / 8, turns = PART / eights;
    const unsigned first = threadIdx.x % eights * 8, turn = threadIdx.x / eights;
    const bool whole = width % 8 == 0;
    if (turn >= turns) return;
    const unsigned first_row = turn >= begin ? turn : turn + (begin - turn + turns - 1) / turns * turns;
#pragma unroll 4
    for (unsigned row = first_row; row < end; row += turns) {
        float x[8];
        load_some(rows + row * apart + first, some_of_8(first, width), whole, x);
#pragma unroll
        for (unsigned head = 0; head < HEADS; head++)
            for (unsigned i = 0; i < 8; i++)
                sums[head][i] += shares[head * PART + row] * x[i];
    }
}

// Adds up the sums of the threads with the same columns, and gives each column of the row to `store_at`.
// `shared` has 8 * PART numbers. All threads of the block must call it.
template <class F>
__forceinline__ void add_turns(const float (&sum)[8], float *shared, unsigned width, F store_at) {
    const unsigned eights = (width + 7) / 8, turns = PART / eights;
    __syncthreads(); // All have read what was there.
    if (threadIdx.x < turns * eights)
        for (unsigned i = 0; i < 8; i++)
            shared[threadIdx.x * 8 + i] = sum[i];
    __syncthreads();
    for (unsigned column = threadIdx.x; column < width; column += PART) {
        float all = 0;
        for (unsigned turn = 0; turn < turns; turn++)
            all += shared[turn * eights * 8 + column];
        store_at(column, all);
    }
}

// Where the block writes: the output, if the text has one part, and otherwise the part's sums of values, the
// largest score and the sum of exponentials.
template <class T> struct Written {
    T *out;
    float *sums, *totals;
};

// HEADS query heads of a token, from `head` on, of which `there` exist, over the keys of a part.
template <unsigned HEADS, class T>
__forceinline__ void part_of_heads(const Written<T> &to, const T *queries, const T *keys, u64 row, u64 values,
                                   unsigned count, unsigned there, unsigned width, float scale) {
    const unsigned eights = (width + 7) / 8, padded = 8 * eights;
    float *shares = (float *)dynamic_shared(), *partial = shares + HEADS * PART, *query = partial + 8 * PART;
    __syncthreads(); // The heads before have been read.
    for (unsigned i = threadIdx.x; i < HEADS * padded; i += PART) {
        const unsigned head = i / padded, column = i % padded;
        const bool is_there = head < there && column < width;
        query[i] = is_there ? scale * load(queries + (u64)head * width + column) : 0;
    }
    __syncthreads();
    // As many threads as a row has eights, at most a warp, share a key.
    unsigned lanes = 1;
    while (lanes < eights && lanes < 32)
        lanes *= 2;
    for (unsigned base = 0; base < count; base += PART / lanes) {
        const unsigned key = base + threadIdx.x / lanes;
        float products[HEADS] = {};
        for (unsigned eight = threadIdx.x % lanes; eight < eights; eight += lanes) {
            float x[8];
            const unsigned some = key < count ? some_of_8(8 * eight, width) : 0;
            load_some(keys + key * row + 8 * eight, some, width % 8 == 0, x);
#pragma unroll
            for (unsigned head = 0; head < HEADS; head++)
                for (unsigned i = 0; i < 8; i++)
                    products[head] += query[head * padded + 8 * eight + i] * x[i];
        }
#pragma unroll
        for (unsigned head = 0; head < HEADS; head++) {
            const float product = warp_sum(products[head], lanes);
            if (threadIdx.x % lanes == 0 && key < count) shares[head * PART + key] = product;
        }
    }
    __syncthreads();
    float totals[HEADS], largest[HEADS];
#pragma unroll
    for (unsigned head = 0; head < HEADS; head++) {
        largest[head] = largest_of(shares + head * PART, count);
        const bool is_there = threadIdx.x < count;
        const float share = is_there ? expf(shares[head * PART + threadIdx.x] - largest[head]) : 0;
        totals[head] = block_sum(share);
        if (is_there) shares[head * PART + threadIdx.x] = share;
    }
    __syncthreads();
    float sums[HEADS][8] = {};
    add_rows(sums, shares, keys + values, row, 0, count, width);
#pragma unroll
    for (unsigned head = 0; head < HEADS; head++)
        if (to.sums == nullptr) {
            add_turns(sums[head], partial, width, [&](unsigned column, float sum) {
                if (head < there) store(to.out + (u64)head * width + column, sum / totals[head]);
            });
        } else {
            add_turns(sums[head], partial, width, [&](unsigned column, float sum) {
                if (head < there) to.sums[head * (u64)gridDim.y * width + column] = sum;
            });
            if (threadIdx.x == 0 && head < there) {
                to.totals[2 * head * (u64)gridDim.y] = largest[head];
                to.totals[2 * head * (u64)gridDim.y + 1] = totals[head];
            }
        }
}

// A part of the keys of a token, for all query heads that share them.
template <class T>
__forceinline__ void part(T *out, float *partials, const T *qkv, const T *kept, const Sizes &sizes,
                          unsigned past, unsigned first_part, float scale) {
    const unsigned token = blockIdx.x, shared = blockIdx.z, width = sizes.width, group = sizes.heads.group();
    const unsigned last = past + token, seen = sizes.heads.first_key(last);
    const unsigned part_start = (first_part + blockIdx.y) * PART;
    const unsigned start = part_start < seen ? seen : part_start;
    const unsigned end = part_start + PART < last + 1 ? part_start + PART : last + 1;
    const unsigned count = start < end ? end - start : 0;
    const u64 row = (u64)2 * sizes.heads.key_value * width;
    const T *keys = kept + start * row + (u64)shared * width;
    // Partials: the sums of all tokens, heads and parts, then their totals.
    const u64 all = (u64)gridDim.x * sizes.heads.query * gridDim.y;
    for (unsigned done = 0; done < group;) {
        const unsigned head = shared * group + done;
        const u64 place = ((u64)token * sizes.heads.query + head) * gridDim.y + blockIdx.y;
        Written<T> to = {out + sizes.output(token, head), nullptr, nullptr};
        if (partials) to = {nullptr, partials + place * width, partials + all * width + 2 * place};
        const T *queries = qkv + sizes.query(token, head);
        if (group == 1) {
            part_of_heads<1>(to, queries, keys, row, row / 2, count, 1, width, scale);
            done += 1;
        } else {
            const unsigned left = group - done;
            part_of_heads<4>(to, queries, keys, row, row / 2, count, left < 4 ? left : 4, width, scale);
            done += 4;
        }
    }
}

// Adds up the parts of a query head of a token.
template <class T>
__forceinline__ void join_parts(T *out, const float *partials, unsigned first_part, unsigned parts,
                                unsigned query, unsigned width) {
    float *shares = (float *)dynamic_shared(), *partial = shares + PART;
    const u64 head = (u64)blockIdx.x * query + blockIdx.y, all = (u64)gridDim.x * query * parts;
    const float *sums = partials + head * parts * width, *totals = partials + all * width + 2 * head * parts;
    float most = minus_infinity();
    for (unsigned i = threadIdx.x; i < parts; i += PART)
        most = fmaxf(most, totals[2 * i]);
    most = block_max(most);
    float total = 0, sum[1][8] = {};
    // A part has the same thread and turn in every call, whichever part is the call's first.
    for (unsigned tile = first_part / PART * PART; tile < first_part + parts; tile += PART) {
        const unsigned part = tile + threadIdx.x - first_part;
        const unsigned begin = tile < first_part ? first_part - tile : 0, left = first_part + parts - tile;
        const float share = part < parts ? expf(totals[2 * part] - most) : 0;
        total += block_sum(part < parts ? share * totals[2 * part + 1] : 0);
        __syncthreads(); // The shares before have been used.
        shares[threadIdx.x] = share;
        __syncthreads();
        const unsigned end = left < PART ? left : PART;
        add_rows(sum, shares, sums + ((u64)tile - first_part) * width, width, begin, end, width);
    }
    add_turns(sum[0], partial, width, [&](unsigned column, float all) {
        store(out + head * width + column, all / total);
    });
}

} // namespace attention

// Kernels for f32 and bf16 (type T). Shapes: out `[time, query * width]`, qkv `[time, vectors * width]`, as
// in any.cu with one sequence; kept `[past + time, 2 * key_value * width]`: all keys of a token, then its
// values; partials in f32 `[time, query, parts, width]`, and after them `[time, query, parts, 2]`.
//
// attention_keep copies the keys and values of qkv, `count` numbers, to the rows of kept from the given
// address on. Of a row of `row` numbers it leaves out the first `skip`. Both are multiples of a head's width. Grid: a
// thread for every eight numbers.
//
// attention_next writes out, if `partials` is null and there is one part, or else partials. The rows of kept
// that belong to qkv must have been copied. A query sees `window` keys at most. The first part of the grid is
// `first_part` of the text. Grid: [time, parts, key and value heads], 256 threads. Dynamic shared memory:
// 4 * (2304 + rows) bytes with one query head for each key head, 4 * (3072 + 4 * rows) with several; rows:
// `width` up to a multiple of eight. The width is at most 2048.
//
// attention_join_parts writes out from partials. Grid: [time, query heads], 256 threads. Dynamic shared
// memory: 4 * 2304 bytes.
#define ATTENTION_NEXT(T, NAME)                                                                              \
    extern "C" __global__ void __launch_bounds__(256)                                                        \
        attention_keep##NAME(T *kept, const T *qkv, u64 count, unsigned row, unsigned skip) {                \
        const u64 first = 8 * global_thread();                                                               \
        const unsigned width = row - skip;                                                                   \
        if (width % 8 == 0 && skip % 8 == 0) {                                                               \
            if (first >= count) return;                                                                      \
            float x[8];                                                                                      \
            load_all(qkv + first / width * row + skip + first % width, x);                                   \
            store_all(kept + first, x);                                                                      \
            return;                                                                                          \
        }                                                                                                    \
        for (u64 index = first; index < first + 8 && index < count; index++)                                 \
            kept[index] = qkv[index / width * row + skip + index % width];                                   \
    }                                                                                                        \
    extern "C" __global__ void __launch_bounds__(256, 2)                                                     \
        attention_next##NAME(                                                                                \
            T *out, float *partials, const T *qkv, const T *kept, unsigned past, unsigned time,              \
            unsigned query, unsigned key_value, unsigned width, unsigned window, unsigned first_part,        \
            float scale) {                                                                                   \
        const attention::Sizes sizes = {{time, query, key_value, window}, 1, width};                         \
        attention::part(out, partials, qkv, kept, sizes, past, first_part, scale);                           \
    }                                                                                                        \
    extern "C" __global__ void __launch_bounds__(256)                                                        \
        attention_join_parts##NAME(                                                                          \
            T *out, const float *partials, unsigned first_part, unsigned parts, unsigned query,              \
            unsigned width) {                                                                                \
        attention::join_parts(out, partials, first_part, parts, query, width);                               \
    }

F32_AND_BF16(ATTENTION_NEXT)
