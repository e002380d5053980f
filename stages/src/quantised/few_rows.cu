// Products of few rows with a quantised matrix. Its numbers are decoded in registers, and go nowhere else.

namespace few_rows {

// It is the same in on_gpu.rs.
const unsigned MOST_ROWS = 8;

// The outputs of a warp. Each number of the rows is loaded once for all of them.
const unsigned OUTPUTS = 2;

// out[rows, all] = x[rows, inputs] times the transpose of `outputs` rows of blocks, plus bias[outputs], unless
// it is null. `all`: the outputs of the whole matrix; these rows are one kind of its blocks.
template <class T> struct Product {
    T* out;
    const T* x;
    Bytes blocks;
    const T* bias;
    unsigned rows, inputs, outputs, all;
};

// Adds this lane's share: every 32nd piece of eight numbers. So the order of a sum depends on nothing but the
// number of inputs.
template <unsigned CODING, unsigned ROWS, class T>
__forceinline__ void add(float (&sums)[ROWS][OUTPUTS], const Product<T>& of, unsigned first) {
    const BlockSize size = block_size(CODING);
    Bytes blocks[OUTPUTS];
    for (unsigned i = 0; i < OUTPUTS; ++i) {
        unsigned output = first + i < of.outputs ? first + i : first;
        blocks[i] = of.blocks + (u64)output * (of.inputs / size.numbers) * size.bytes;
    }
    for (unsigned input = 8 * lane(); input < of.inputs; input += 8 * 32) {
        unsigned block = input / size.numbers * size.bytes, at = input % size.numbers;
        float w[OUTPUTS][8];
#pragma unroll
        for (unsigned i = 0; i < OUTPUTS; ++i) decode_eight(blocks[i] + block, CODING, at, w[i]);
#pragma unroll
        for (unsigned row = 0; row < ROWS; ++row) {
            if (row >= of.rows) break;
            float x[8];
            load_all(of.x + (u64)row * of.inputs + input, x);
#pragma unroll
            for (unsigned i = 0; i < OUTPUTS; ++i)
                for (unsigned k = 0; k < 8; ++k) sums[row][i] = fmaf(w[i][k], x[k], sums[row][i]);
        }
    }
}

// ROWS: as many rows as there may be.
template <unsigned ROWS, class T> void multiply(const Product<T>& of, unsigned coding) {
    unsigned first = OUTPUTS * (unsigned)(global_thread() / 32);
    if (first >= of.outputs) return;
    float sums[ROWS][OUTPUTS] = {};
    switch (coding) {
        case OF_F16: add<OF_F16>(sums, of, first); break;
        case OF_BF16: add<OF_BF16>(sums, of, first); break;
        case OF_Q4_0: add<OF_Q4_0>(sums, of, first); break;
        case OF_Q4_1: add<OF_Q4_1>(sums, of, first); break;
        case OF_Q5_0: add<OF_Q5_0>(sums, of, first); break;
        case OF_Q5_1: add<OF_Q5_1>(sums, of, first); break;
        case OF_Q8_0: add<OF_Q8_0>(sums, of, first); break;
        case OF_Q2_K: add<OF_Q2_K>(sums, of, first); break;
        case OF_Q3_K: add<OF_Q3_K>(sums, of, first); break;
        case OF_Q4_K: add<OF_Q4_K>(sums, of, first); break;
        case OF_Q5_K: add<OF_Q5_K>(sums, of, first); break;
        case OF_Q6_K: add<OF_Q6_K>(sums, of, first); break;
        default: add<OF_NF4>(sums, of, first);
    }
#pragma unroll
    for (unsigned row = 0; row < ROWS; ++row) {
        if (row >= of.rows) break;
#pragma unroll
        for (unsigned i = 0; i < OUTPUTS; ++i) {
            float sum = warp_sum(sums[row][i]);
            if (lane() > 0 || first + i >= of.outputs) continue;
            if (of.bias) sum += load(of.bias + first + i);
            store(of.out + (u64)row * of.all + first + i, sum);
        }
    }
}

}  // namespace few_rows

// `multiply_row` has one row, `multiply_rows` at most MOST_ROWS. A warp for every OUTPUTS outputs.
#define MULTIPLY(T, NAME, ROWS)                                                                            \
    extern "C" __global__ void __launch_bounds__(256, 3)                                                   \
        NAME(T* out, const T* x, const unsigned char* blocks, const T* bias, unsigned rows, unsigned inputs, \
             unsigned outputs, unsigned all, unsigned coding) {                                            \
        few_rows::multiply<ROWS, T>({out, x, blocks, bias, rows, inputs, outputs, all}, coding);           \
    }
#define MAKE(T, SUFFIX)                  \
    MULTIPLY(T, multiply_row##SUFFIX, 1) \
    MULTIPLY(T, multiply_rows##SUFFIX, few_rows::MOST_ROWS)
F32_AND_BF16(MAKE)
#undef MAKE
#undef MULTIPLY
