// Causal attention for any head width and number format, by streaming softmax. Forward and the gradient of
// queries: a warp takes a query row and loops over its keys. The gradients of keys and values: a warp takes a
// key row and loops over the queries. Correct for all sizes, but slow.

namespace attention {

// The row that a warp works on, out of the `batch * heads * time` rows of all heads, and where it lies.
struct Place {
    unsigned time, dim, row, column;
    unsigned long long sequence, index;
    bool there;

    __forceinline__ Place(unsigned batch, unsigned time, unsigned heads, unsigned width)
        : time(time), dim(heads * width) {
        index = (unsigned long long)blockIdx.x * (blockDim.x / 32) + warp();
        row = index % time;
        const unsigned long long head = index / time;
        column = head % heads * width;
        sequence = head / heads;
        there = sequence < batch;
    }

    // The index of the first number of a row of the head, in `[batch, time, parts * dim]`. In a part, the
    // numbers of all heads lie side by side.
    __forceinline__ unsigned long long at(unsigned row, unsigned parts = 1, unsigned part = 0) const {
        return ((sequence * time + row) * parts + part) * dim + column;
    }

    // The same for queries, keys and values.
    __forceinline__ unsigned long long query(unsigned row) const {
        return at(row, 3, 0);
    }
    __forceinline__ unsigned long long key(unsigned row) const {
        return at(row, 3, 1);
    }
    __forceinline__ unsigned long long value(unsigned row) const {
        return at(row, 3, 2);
    }

    // The index of the head's first row in lse and delta.
    __forceinline__ unsigned long long first() const {
        return index - row;
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
__forceinline__ void forward_any(T *out, float *lse, const T *qkv, const Place &it, unsigned width,
                                 float scale) {
    float *query = own_rows(2, width), *sum = query + width;
    hold_row(query, scale, qkv + it.query(it.row), width);
    clear_row(sum, width);
    float largest = minus_infinity(), total = 0;
    for (unsigned key = 0; key <= it.row; key++) {
        const float score = product_of_rows(query, qkv + it.key(key), width), before = largest;
        largest = fmaxf(before, score);
        const float correction = expf(before - largest), share = expf(score - largest);
        total = total * correction + share;
        const T *value = qkv + it.value(key);
        for (unsigned i = lane(); i < width; i += 32)
            sum[i] = sum[i] * correction + share * load(value + i);
    }
    put_row(out + it.at(it.row), 1 / total, sum, width);
    if (lane() == 0)
        lse[it.index] = largest + logf(total);
}

// Eight threads share a row of the head blockIdx.y.
template <class T>
__forceinline__ void delta_any(float *delta, const T *grad, const T *out, unsigned batch, unsigned time,
                               unsigned width) {
    const unsigned row = (blockIdx.x * blockDim.x + threadIdx.x) / 8, own = threadIdx.x % 8 * 8;
    const bool whole = width % 8 == 0 && is_aligned(grad) && is_aligned(out);
    for (u64 sequence = blockIdx.z; sequence < batch; sequence += gridDim.z) {
        const u64 at = ((sequence * time + row) * gridDim.y + blockIdx.y) * width;
        float sum = 0;
        for (unsigned first = own; first < width; first += 64) {
            const unsigned count = row < time ? some_of_8(first, width) : 0;
            float x[8], y[8];
            load_both(grad + at + first, count, x, out + at + first, count, y, whole);
            for (int i = 0; i < 8; i++)
                sum = fmaf(x[i], y[i], sum);
        }
        sum = warp_sum(sum, 8);
        if (own == 0 && row < time)
            delta[(sequence * gridDim.y + blockIdx.y) * time + row] = sum;
    }
}

template <class T>
__forceinline__ void backward_keys_any(T *qkv_grad, const T *qkv, const T *grad, const float *lse,
                                       const float *delta, const Place &it, unsigned width, float scale) {
    float *key = own_rows(4, width), *value = key + width, *key_grad = value + width,
        *value_grad = key_grad + width;
    hold_row(key, scale, qkv + it.key(it.row), width);
    hold_row(value, 1, qkv + it.value(it.row), width);
    clear_row(key_grad, width);
    clear_row(value_grad, width);
    for (unsigned row = it.row; row < it.time; row++) {
        const T *query = qkv + it.query(row), *out_grad = grad + it.at(row);
        const float probability = expf(product_of_rows(key, query, width) - lse[it.first() + row]);
        const float score_grad =
            probability * (product_of_rows(value, out_grad, width) - delta[it.first() + row]);
        add_row(value_grad, probability, out_grad, width);
        add_row(key_grad, score_grad, query, width);
    }
    put_row(qkv_grad + it.key(it.row), scale, key_grad, width);
    put_row(qkv_grad + it.value(it.row), 1, value_grad, width);
}

template <class T>
__forceinline__ void backward_queries_any(T *qkv_grad, const T *qkv, const T *grad, const float *lse,
                                          const float *delta, const Place &it, unsigned width, float scale) {
    float *query = own_rows(3, width), *out_grad = query + width, *sum = out_grad + width;
    hold_row(query, scale, qkv + it.query(it.row), width);
    hold_row(out_grad, 1, grad + it.at(it.row), width);
    clear_row(sum, width);
    for (unsigned row = 0; row <= it.row; row++) {
        const T *key = qkv + it.key(row);
        const float probability = expf(product_of_rows(query, key, width) - lse[it.index]);
        const float value_product = product_of_rows(out_grad, qkv + it.value(row), width);
        add_row(sum, probability * (value_product - delta[it.index]), key, width);
    }
    put_row(qkv_grad + it.query(it.row), scale, sum, width);
}

} // namespace attention

// Kernels for f32 and bf16 (type T). Shapes: out and grad `[batch, time, heads * width]`; qkv and qkv_grad
// `[batch, time, 3 * heads * width]`; lse and delta f32 `[batch, heads, time]`. Grid (except
// attention_delta): a warp for each row of a head, whole warps in a block, as many blocks as all rows need.
//
// attention_forward_any writes out and lse, the natural logarithm of a row's sum of exponentials of `scale`
// times the scores. Dynamic shared memory: 8 * width bytes for each warp.
//
// attention_delta writes the sum of grad * out for each row of a head. It takes any width, and the fused
// kernels use it too. Grid: eight threads for each row; [blocks for all rows of a head, heads, at most
// batch].
//
// attention_backward_kv_any writes the keys' and values' part of qkv_grad. The formulas are at the top of
// attention_backward.cu. Dynamic shared memory: 16 * width bytes for each warp.
//
// attention_backward_q_any writes the queries' part. Dynamic shared memory: 12 * width bytes for each warp.
#define ATTENTION_ANY(T, NAME)                                                                           \
    extern "C" __global__ void attention_forward_any_##NAME(                                             \
        T *out, float *lse, const T *qkv, unsigned batch, unsigned time, unsigned heads, unsigned width, \
        float scale) {                                                                                   \
        const attention::Place it(batch, time, heads, width);                                            \
        if (it.there)                                                                                    \
            attention::forward_any(out, lse, qkv, it, width, scale);                                     \
    }                                                                                                    \
    extern "C" __global__ void attention_delta_##NAME(                                                   \
        float *delta, const T *grad, const T *out, unsigned batch, unsigned time, unsigned width) {      \
        attention::delta_any(delta, grad, out, batch, time, width);                                      \
    }                                                                                                    \
    extern "C" __global__ void attention_backward_kv_any_##NAME(                                         \
        T *qkv_grad, const T *qkv, const T *grad, const float *lse, const float *delta, unsigned batch,  \
        unsigned time, unsigned heads, unsigned width, float scale) {                                    \
        const attention::Place it(batch, time, heads, width);                                            \
        if (it.there)                                                                                    \
            attention::backward_keys_any(qkv_grad, qkv, grad, lse, delta, it, width, scale);             \
    }                                                                                                    \
    extern "C" __global__ void attention_backward_q_any_##NAME(                                          \
        T *qkv_grad, const T *qkv, const T *grad, const float *lse, const float *delta, unsigned batch,  \
        unsigned time, unsigned heads, unsigned width, float scale) {                                    \
        const attention::Place it(batch, time, heads, width);                                            \
        if (it.there)                                                                                    \
            attention::backward_queries_any(qkv_grad, qkv, grad, lse, delta, it, width, scale);          \
    }

ATTENTION_ANY(float, f32)
ATTENTION_ANY(bf16, bf16)
