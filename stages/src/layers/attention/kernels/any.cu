// Causal attention for any head width and number format, by streaming softmax. Forward and the gradient of
// queries: a warp takes a query row and loops over its keys. The gradients of keys and values: a warp takes a
// key row and loops over the queries. Correct for all sizes, but slow.

namespace attention {

// The sizes, and where vectors lie.
struct Sizes {
    Heads heads;
    unsigned batch, width;

    // The index of the first number of a vector of the input, `[batch, time, vectors * width]`.
    __forceinline__ u64 input(u64 row, unsigned vector) const {
        return (row * heads.vectors() + vector) * width;
    }
    __forceinline__ u64 query(u64 row, unsigned head) const {
        return input(row, head);
    }
    __forceinline__ u64 key(u64 row, unsigned shared) const {
        return input(row, heads.query + shared);
    }
    __forceinline__ u64 value(u64 row, unsigned shared) const {
        return input(row, heads.query + heads.key_value + shared);
    }

    // The same in the output, `[batch, time, query heads * width]`.
    __forceinline__ u64 output(u64 row, unsigned head) const {
        return (row * heads.query + head) * width;
    }

    // The index of a query head's first row in lse and delta, in a document of `rows` rows from `first` on.
    __forceinline__ u64 sums(u64 first, unsigned rows, unsigned head) const {
        return first * heads.query + (u64)head * rows;
    }
};

// The row that a warp works on: out of the rows of all of `count` heads of every sequence, or of the document
// blockIdx.z.
struct Place {
    unsigned row, head, rows;
    // The first row of the sequence or document.
    u64 first;
    bool there;

    __forceinline__ Place(const Sizes &sizes, unsigned count, const unsigned *documents) {
        const u64 index = (u64)blockIdx.x * (blockDim.x / 32) + warp();
        rows = documents ? documents[2 * blockIdx.z + 1] : sizes.heads.time;
        const u64 of_all = index / rows;
        row = index % rows;
        head = of_all % count;
        first = documents ? documents[2 * blockIdx.z] : of_all / count * rows;
        there = documents ? of_all < count : of_all / count < sizes.batch;
    }
};

// A warp's own rows in shared memory: `rows` rows of `width` numbers. Only one lane uses the columns lane,
// lane + 32, ...
__forceinline__ float *own_rows(unsigned rows, unsigned width) {
    return (float *)dynamic_shared() + warp() * rows * width;
}

// The scalar product of a row in shared memory and a row in global memory. All lanes get it.
template <class T> __forceinline__ float product_of_rows(const float *held, const T *row, unsigned width) {
    float sum = 0;
    for (unsigned i = lane(); i < width; i += 32)
        sum += held[i] * load(row + i);
    return warp_sum(sum);
}

// sum += factor * row.
template <class T> __forceinline__ void add_row(float *sum, float factor, const T *row, unsigned width) {
    for (unsigned i = lane(); i < width; i += 32)
        sum[i] += factor * load(row + i);
}

// held = factor * row.
template <class T> __forceinline__ void hold_row(float *held, float factor, const T *row, unsigned width) {
    for (unsigned i = lane(); i < width; i += 32)
        held[i] = factor * load(row + i);
}

// row = factor * held.
template <class T> __forceinline__ void put_row(T *row, float factor, const float *held, unsigned width) {
    for (unsigned i = lane(); i < width; i += 32)
        store(row + i, factor * held[i]);
}

__forceinline__ void clear_row(float *row, unsigned width) {
    for (unsigned i = lane(); i < width; i += 32)
        row[i] = 0;
}

template <class T>
__forceinline__ void forward_any(T *out, float *lse, const T *qkv, const Sizes &sizes, float scale,
                                 const unsigned *documents) {
    const Place it(sizes, sizes.heads.query, documents);
    if (!it.there)
        return;
    const unsigned width = sizes.width, shared = it.head / sizes.heads.group();
    float *query = own_rows(2, width), *sum = query + width;
    hold_row(query, scale, qkv + sizes.query(it.first + it.row, it.head), width);
    clear_row(sum, width);
    float largest = minus_infinity(), total = 0;
    for (unsigned key = sizes.heads.first_key(it.row); key <= it.row; key++) {
        const float before = largest,
                    score = product_of_rows(query, qkv + sizes.key(it.first + key, shared), width);
        largest = fmaxf(before, score);
        const float correction = expf(before - largest), share = expf(score - largest);
        total = total * correction + share;
        const T *value = qkv + sizes.value(it.first + key, shared);
        for (unsigned i = lane(); i < width; i += 32)
            sum[i] = sum[i] * correction + share * load(value + i);
    }
    put_row(out + sizes.output(it.first + it.row, it.head), 1 / total, sum, width);
    if (lane() == 0)
        lse[sizes.sums(it.first, it.rows, it.head) + it.row] = largest + logf(total);
}

// Eight threads share a row of the head blockIdx.y.
template <class T>
__forceinline__ void delta_any(float *delta, const T *grad, const T *out, unsigned batch, unsigned time,
                               unsigned width, const unsigned *documents) {
    const unsigned row = (blockIdx.x * blockDim.x + threadIdx.x) / 8, own = threadIdx.x % 8 * 8;
    const bool whole = width % 8 == 0 && is_aligned(grad) && is_aligned(out);
    for (u64 document = blockIdx.z; document < batch; document += gridDim.z) {
        const unsigned rows = documents ? documents[2 * document + 1] : time;
        const u64 before = documents ? documents[2 * document] : document * time;
        const u64 at = ((before + row) * gridDim.y + blockIdx.y) * width;
        float sum = 0;
        for (unsigned first = own; first < width; first += 64) {
            const unsigned count = row < rows ? some_of_8(first, width) : 0;
            float x[8], y[8];
            load_both(grad + at + first, count, x, out + at + first, count, y, whole);
            for (int i = 0; i < 8; i++)
                sum = fmaf(x[i], y[i], sum);
        }
        sum = warp_sum(sum, 8);
        if (own == 0 && row < rows)
            delta[before * gridDim.y + (u64)blockIdx.y * rows + row] = sum;
    }
}

template <class T>
__forceinline__ void backward_keys_any(T *qkv_grad, const T *qkv, const T *grad, const float *lse,
                                       const float *delta, const Sizes &sizes, float scale,
                                       const unsigned *documents) {
    const Place it(sizes, sizes.heads.key_value, documents);
    if (!it.there)
        return;
    const unsigned width = sizes.width, group = sizes.heads.group();
    const u64 own_key = sizes.key(it.first + it.row, it.head), own_value = sizes.value(it.first + it.row, it.head);
    float *key = own_rows(4, width), *value = key + width, *key_grad = value + width,
          *value_grad = key_grad + width;
    hold_row(key, scale, qkv + own_key, width);
    hold_row(value, 1, qkv + own_value, width);
    clear_row(key_grad, width);
    clear_row(value_grad, width);
    const unsigned end = min(it.rows, it.row + sizes.heads.window);
    for (unsigned head = it.head * group; head < (it.head + 1) * group; head++) {
        const u64 sums = sizes.sums(it.first, it.rows, head);
        for (unsigned row = it.row; row < end; row++) {
            const T *query = qkv + sizes.query(it.first + row, head),
                    *out_grad = grad + sizes.output(it.first + row, head);
            const float probability = expf(product_of_rows(key, query, width) - lse[sums + row]);
            const float score_grad =
                probability * (product_of_rows(value, out_grad, width) - delta[sums + row]);
            add_row(value_grad, probability, out_grad, width);
            add_row(key_grad, score_grad, query, width);
        }
    }
    put_row(qkv_grad + own_key, scale, key_grad, width);
    put_row(qkv_grad + own_value, 1, value_grad, width);
}

template <class T>
__forceinline__ void backward_queries_any(T *qkv_grad, const T *qkv, const T *grad, const float *lse,
                                          const float *delta, const Sizes &sizes, float scale,
                                          const unsigned *documents) {
    const Place it(sizes, sizes.heads.query, documents);
    if (!it.there)
        return;
    const unsigned width = sizes.width, shared = it.head / sizes.heads.group();
    const u64 own = sizes.query(it.first + it.row, it.head), sums = sizes.sums(it.first, it.rows, it.head) + it.row;
    float *query = own_rows(3, width), *out_grad = query + width, *sum = out_grad + width;
    hold_row(query, scale, qkv + own, width);
    hold_row(out_grad, 1, grad + sizes.output(it.first + it.row, it.head), width);
    clear_row(sum, width);
    for (unsigned row = sizes.heads.first_key(it.row); row <= it.row; row++) {
        const T *key = qkv + sizes.key(it.first + row, shared);
        const float probability = expf(product_of_rows(query, key, width) - lse[sums]);
        const float value_product =
            product_of_rows(out_grad, qkv + sizes.value(it.first + row, shared), width);
        add_row(sum, probability * (value_product - delta[sums]), key, width);
    }
    put_row(qkv_grad + own, scale, sum, width);
}

} // namespace attention

// Kernels for f32 and bf16 (type T). Shapes: out and grad `[batch, time, query * width]`; qkv and qkv_grad
// `[batch, time, vectors * width]`, where the vectors are `query` queries, query / group keys and as many
// values; lse and delta f32 `[batch, query, time]`. A query sees `window` keys at most, from 1 to `time`.
// Grid (except attention_delta): a warp for each row of a head, whole warps in a block, as many blocks as
// all rows need.
//
// If there are `documents`, a document takes the place of a sequence. They are given by the first row and the
// number of rows of each. The grid's z is their number, and `batch` too; x is enough for the longest one. Then
// lse and delta have for each document `[query, rows]`, one document after the other.
//
// attention_forward_any writes out and lse, the natural logarithm of a row's sum of exponentials of `scale`
// times the scores. Dynamic shared memory: 8 * width bytes for each warp.
//
// attention_delta writes the sum of grad * out for each row of a head. It takes any width, and the fused
// kernels use it too. Grid: eight threads for each row; [blocks for all rows of a head, query heads, at most
// batch].
//
// attention_backward_kv_any writes the keys' and values' part of qkv_grad: sums over the query heads that
// share them, in their order. A warp takes a row of a key and value head. The formulas are at the top of
// attention_backward.cu. Dynamic shared memory: 16 * width bytes for each warp.
//
// attention_backward_q_any writes the queries' part. Dynamic shared memory: 12 * width bytes for each warp.
#define ATTENTION_BACKWARD_ANY(T, NAME, SHORT, OF)                                                           \
    extern "C" __global__ void __launch_bounds__(256, 4)                                                     \
        attention_backward_##SHORT##_any_##NAME(                                                             \
            T *qkv_grad, const T *qkv, const T *grad, const float *lse, const float *delta, unsigned batch,  \
            unsigned time, unsigned query, unsigned key_value, unsigned width, unsigned window, float scale, \
            const unsigned *documents) {                                                                     \
        const attention::Sizes sizes = {{time, query, key_value, window}, batch, width};                     \
        attention::backward_##OF##_any(qkv_grad, qkv, grad, lse, delta, sizes, scale, documents);            \
    }

#define ATTENTION_ANY(T, NAME)                                                                               \
    extern "C" __global__ void __launch_bounds__(256, 4)                                                     \
        attention_forward_any_##NAME(                                                                        \
            T *out, float *lse, const T *qkv, unsigned batch, unsigned time, unsigned query, unsigned key_value, \
            unsigned width, unsigned window, float scale, const unsigned *documents) {                       \
        const attention::Sizes sizes = {{time, query, key_value, window}, batch, width};                     \
        attention::forward_any(out, lse, qkv, sizes, scale, documents);                                      \
    }                                                                                                        \
    extern "C" __global__ void __launch_bounds__(128)                                                        \
        attention_delta_##NAME(                                                                              \
            float *delta, const T *grad, const T *out, unsigned batch, unsigned time, unsigned width,        \
            const unsigned *documents) {                                                                     \
        attention::delta_any(delta, grad, out, batch, time, width, documents);                               \
    }                                                                                                        \
    ATTENTION_BACKWARD_ANY(T, NAME, kv, keys)                                                                \
    ATTENTION_BACKWARD_ANY(T, NAME, q, queries)

ATTENTION_ANY(float, f32)
ATTENTION_ANY(bf16, bf16)
