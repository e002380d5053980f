// The product itself. Every element of op(A) op(B) is summed in f32 over rising k,
// or two halves of it are.
#include "cublaslt.h"
#include <cmath>
#include <cstring>
#include <vector>

static float from_bf16(uint16_t bits) {
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    return memcpy(&value, &wide, 4), value;
}

static uint16_t to_bf16(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    if (value != value) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// Rounds to the nearest number with 10 bits of mantissa, ties away from zero.
static float to_tf32(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    if (std::isfinite(value)) bits = (bits + 0x1000) & ~0x1fffu;
    return memcpy(&value, &bits, 4), value;
}

static float load(const void *at, Type type, size_t index) {
    return type == BF16 ? from_bf16(((const uint16_t *)at)[index]) : ((const float *)at)[index];
}

static void store(void *at, Type type, size_t index, float value) {
    if (type == BF16)
        ((uint16_t *)at)[index] = to_bf16(value);
    else
        ((float *)at)[index] = value;
}

// GELU by tanh, as in cuBLASLt.
static const float ROOT = 0.7978845608028654f, CUBE = 0.044715f;
static float gelu(float x) { return 0.5f * x * (1 + tanhf(ROOT * (x + CUBE * x * x * x))); }
static float gelu_slope(float x) {
    float t = tanhf(ROOT * (x + CUBE * x * x * x));
    return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * ROOT * (1 + 3 * CUBE * x * x);
}

// The matrix op(X) of one batch, packed column by column.
static std::vector<float> pack(const void *at, const Layout &layout, bool transpose, bool tf32, int batch) {
    size_t rows = transpose ? layout.cols : layout.rows, cols = transpose ? layout.rows : layout.cols;
    size_t start = (size_t)batch * (size_t)layout.batch_stride, ld = (size_t)layout.ld;
    std::vector<float> packed(rows * cols);
    for (size_t col = 0; col < cols; col++)
        for (size_t row = 0; row < rows; row++) {
            float value = load(at, layout.type, start + (transpose ? row * ld + col : col * ld + row));
            packed[col * rows + row] = tf32 ? to_tf32(value) : value;
        }
    return packed;
}

// sums[i] += a[i, k] b[k, col], in order of rising k from `start` to `end`, for `cols` columns.
#if defined(__x86_64__)
__attribute__((target_clones("avx2", "default")))
#endif
__attribute__((optimize("O3")))
static void multiply(const float *__restrict__ a, const float *__restrict__ b, float *__restrict__ sums,
                     size_t m, size_t k, size_t cols, size_t start, size_t end) {
    const size_t PART = 64;
    for (size_t from = 0; from < m; from += PART) {
        size_t length = m - from < PART ? m - from : PART;
        for (size_t col = 0; col < cols; col++)
            for (size_t step = start; step < end; step++) {
                const float *column = a + step * m + from;
                float factor = b[col * k + step], *sum = sums + col * m + from;
                for (size_t i = 0; i < length; i++) sum[i] += column[i] * factor;
            }
    }
}

static void bias_gradient(const Product &product, const std::vector<float> &a, const std::vector<float> &b,
                          size_t k) {
    Type type = product.d.type;
    size_t m = product.d.rows, n = product.d.cols;
    if (product.operation.epilogue == BGRADA)
        for (size_t i = 0; i < m; i++) {
            float sum = 0;
            for (size_t step = 0; step < k; step++) sum += a[step * m + i];
            store(product.operation.bias, type, i, sum);
        }
    if (product.operation.epilogue == BGRADB)
        for (size_t j = 0; j < n; j++) {
            float sum = 0;
            for (size_t step = 0; step < k; step++) sum += b[j * k + step];
            store(product.operation.bias, type, j, sum);
        }
}

// Applies the epilogue to one element before it is stored.
static float finish(const Operation &operation, Type type, float value, size_t row, size_t bias_start,
                    size_t aux_index) {
    Epilogue epilogue = operation.epilogue;
    if (epilogue == BIAS || epilogue == GELU_BIAS || epilogue == GELU_AUX_BIAS)
        value += load(operation.bias, type, bias_start + row);
    if (epilogue == GELU_AUX || epilogue == GELU_AUX_BIAS) store(operation.aux, type, aux_index, value);
    if (epilogue == GELU || epilogue == GELU_BIAS || epilogue == GELU_AUX || epilogue == GELU_AUX_BIAS)
        value = gelu(value);
    if (epilogue == DGELU || epilogue == DGELU_BGRAD)
        value *= gelu_slope(load(operation.aux, type, aux_index));
    return value;
}

void compute(const Product &product) {
    const Operation &operation = product.operation;
    Type type = product.d.type;
    bool tf32 = operation.compute == COMPUTE_TF32;
    size_t m = product.d.rows, n = product.d.cols,
        k = operation.transpose_a ? product.a.rows : product.a.cols;
    for (int batch = 0; batch < product.d.batches; batch++) {
        std::vector<float> a = pack(product.a_at, product.a, operation.transpose_a, tf32, batch);
        std::vector<float> b = pack(product.b_at, product.b, operation.transpose_b, tf32, batch);
        std::vector<float> sums(m * n, 0.0f), row_sums(m, 0.0f);
        size_t middle = product.halves ? k / 2 : k;
        multiply(a.data(), b.data(), sums.data(), m, k, n, 0, middle);
        if (product.halves) {
            std::vector<float> second(m * n, 0.0f);
            multiply(a.data(), b.data(), second.data(), m, k, n, middle, k);
            for (size_t i = 0; i < m * n; i++) sums[i] += second[i];
        }
        size_t c_start = (size_t)batch * (size_t)product.c.batch_stride,
            d_start = (size_t)batch * (size_t)product.d.batch_stride;
        size_t bias_start = (size_t)batch * (size_t)operation.bias_batch_stride;
        size_t aux_start = (size_t)batch * (size_t)operation.aux_batch_stride;
        for (size_t col = 0; col < n; col++)
            for (size_t row = 0; row < m; row++) {
                float value = product.alpha * sums[col * m + row];
                // C is not read when beta is zero.
                if (product.beta != 0)
                    value += product.beta *
                        load(product.c_at, product.c.type, c_start + col * (size_t)product.c.ld + row);
                value = finish(operation, type, value, row, bias_start,
                               aux_start + col * (size_t)operation.aux_ld + row);
                row_sums[row] += value;
                store(product.d_at, type, d_start + col * (size_t)product.d.ld + row, value);
            }
        bias_gradient(product, a, b, k);
        if (operation.epilogue == DGELU_BGRAD)
            for (size_t row = 0; row < m; row++) store(operation.bias, type, row, row_sums[row]);
    }
}
