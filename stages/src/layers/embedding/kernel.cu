// Token and position embedding. A block works on one row of `dim` numbers, eight numbers a thread at a time.
// It has any whole number of warps.

// out[rows, dim] = tokens[ids[row]] + positions[(first_row + row) % time]. tokens is [.., dim], positions is
// [time or more, dim] or null. If there are `starts`, a position is less by the start of the token's document.
// One block per row.
template <class T>
void embedding_forward(T* out, const unsigned* ids, const T* tokens, const T* positions, u64 first_row,
                       unsigned time, const unsigned* starts, unsigned dim) {
    u64 row = blockIdx.x;
    tokens += (u64)ids[row] * dim;
    if (positions) {
        u64 token = first_row + row;
        positions += (token % time - (starts ? starts[token] : 0)) * dim;
    }
    out += row * dim;
    bool whole = is_aligned(tokens) && is_aligned(positions) && is_aligned(out) && dim % 8 == 0;
    for (unsigned first = 8 * threadIdx.x; first < dim; first += 8 * blockDim.x) {
        unsigned some = some_of_8(first, dim);
        float x[8], y[8];
        load_some(tokens + first, some, whole, x);
        load_some(positions + first, positions ? some : 0, whole, y);
        for (int i = 0; i < 8; ++i) x[i] += y[i];
        store_some(out + first, some, whole, x);
    }
}
#define MAKE(T, SUFFIX)                                                                              \
    extern "C" __global__ void __launch_bounds__(256)                                                \
        embedding_forward##SUFFIX(T* out, const unsigned* ids, const T* tokens, const T* positions,  \
                                  u64 first_row, unsigned time, const unsigned* starts,              \
                                  unsigned dim) {                                                    \
        embedding_forward(out, ids, tokens, positions, first_row, time, starts, dim);                \
    }
F32_AND_BF16(MAKE)
#undef MAKE

// Rows that are summed into one row of the result: `count` rows, with the indices first, first + apart, ...
// The indices count entries of `order`, or all rows if there is no `order`.
struct Run {
    unsigned first, count, apart;
};

// Adds up rows, the first row first. Adds the sum to `out`, or writes it there.
template <class T>
void sum_run(float* out, bool add, const T* rows, const unsigned* order, Run run, unsigned dim) {
    bool whole = is_aligned(rows) && is_aligned(out) && dim % 8 == 0;
    for (unsigned column = 8 * threadIdx.x; column < dim; column += 8 * blockDim.x) {
        unsigned some = some_of_8(column, dim);
        float sum[8] = {};
        if (add) load_some(out + column, some, whole, sum);
#pragma unroll 4
        for (unsigned i = 0; i < run.count; ++i) {
            u64 at = run.first + (u64)i * run.apart;
            float x[8];
            load_some(rows + (order ? order[at] : at) * dim + column, some, whole, x);
            for (int k = 0; k < 8; ++k) sum[k] += x[k];
        }
        store_some(out + column, some, whole, sum);
    }
}

// The work of a block of `embedding_tokens`: it sums the rows order[first .. first + count]. If they are all
// rows of a token, the sum goes to row `to` of the gradient. If they are only a part, it goes to row `to` of
// the partial sums.
struct Part {
    unsigned first, count, to, is_part;
};

// Adds the rows of grad[rows, dim] to the gradient of their tokens, [.., dim]. The sums of parts go to
// partials[.., dim]. One block per entry of parts[gridDim.x].
template <class T>
void embedding_tokens(float* tokens, float* partials, const T* grad, const unsigned* order, const Part* parts,
                      unsigned dim) {
    Part part = parts[blockIdx.x];
    float* out = (part.is_part ? partials : tokens) + (u64)part.to * dim;
    sum_run(out, !part.is_part, grad, order, {part.first, part.count, 1}, dim);
}
#define MAKE(T, SUFFIX)                                                                              \
    extern "C" __global__ void __launch_bounds__(256)                                                \
        embedding_tokens##SUFFIX(float* tokens, float* partials, const T* grad, const unsigned* order, \
                                 const Part* parts, unsigned dim) {                                  \
        embedding_tokens(tokens, partials, grad, order, parts, dim);                                 \
    }
F32_AND_BF16(MAKE)
#undef MAKE

// Adds the partial sums of each token that has several to the token's gradient, in their order: row `to` gets
// partials[first .. first + count]. One block per entry of parts[gridDim.x].
extern "C" __global__ void __launch_bounds__(256)
    embedding_parts(float* tokens, const float* partials, const Part* parts, unsigned dim) {
    Part part = parts[blockIdx.x];
    sum_run(tokens + (u64)part.to * dim, true, partials, (const unsigned*)0, {part.first, part.count, 1},
            dim);
}

// Adds the sum of grad[batch, time, dim] over the batch, in order, to the gradient of positions, [time or
// more, dim]. One block for each of the `time` positions.
template <class T> void embedding_positions(float* positions, const T* grad, unsigned batch, unsigned dim) {
    Run run = {blockIdx.x, batch, gridDim.x};
    sum_run(positions + (u64)blockIdx.x * dim, true, grad, (const unsigned*)0, run, dim);
}
#define MAKE(T, SUFFIX)                                                                              \
    extern "C" __global__ void __launch_bounds__(256, 4)                                             \
        embedding_positions##SUFFIX(float* positions, const T* grad, unsigned batch, unsigned dim) { \
        embedding_positions(positions, grad, batch, dim);                                            \
    }
F32_AND_BF16(MAKE)
#undef MAKE
