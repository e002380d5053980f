// The emulated cuBLASLt: descriptors that callers fill, and one matrix product with all that it needs.
#pragma once
#include <cstdint>
#include <cstdio>

#define API extern "C" __attribute__((visibility("default")))

enum Status {
    SUCCESS = 0,
    NOT_INITIALIZED = 1,
    INVALID_VALUE = 7,
    EXECUTION_FAILED = 13,
    NOT_SUPPORTED = 15,
};
enum Type : int32_t { UNSET = -1, F32 = 0, BF16 = 14 };
enum Compute : int32_t { COMPUTE_F32 = 68, COMPUTE_F32_PEDANTIC = 69, COMPUTE_TF32 = 77 };
enum Epilogue : uint32_t {
    DEFAULT = 1,
    BIAS = 4,
    GELU = 32,
    GELU_BIAS = 36,
    GELU_AUX = 160,
    GELU_AUX_BIAS = 164,
    DGELU = 192,
    DGELU_BGRAD = 208,
    BGRADA = 256,
    BGRADB = 512,
};

/// Prints on standard error what is wrong, and returns `status`.
#define FAIL(status, ...) (fprintf(stderr, "emulated cuBLASLt: " __VA_ARGS__), fputc('\n', stderr), (status))

// No larger than the opaque types of the real library, because callers may keep them on their stack.
struct Layout {
    Type type;
    int32_t order;
    uint64_t rows, cols;
    int64_t ld;
    int64_t batch_stride;
    int32_t batches;
};
static_assert(sizeof(Layout) <= 64, "as the real one");

struct Operation {
    Compute compute;
    Type scale;
    int32_t pointer_mode, transpose_a, transpose_b;
    Epilogue epilogue;
    void *bias, *aux;
    int64_t bias_batch_stride, aux_ld, aux_batch_stride;
    Type bias_type, aux_type;
};
static_assert(sizeof(Operation) <= 256, "as the real one");

struct Preference {
    uint64_t workspace;
    uint32_t alignment[4];  // of A, B, C, D
    // Accepted and ignored.
    uint32_t search, reductions;
};
static_assert(sizeof(Preference) <= 64, "as the real one");

/// The result of a heuristic: valid for this problem, with this much workspace and alignment.
struct Algorithm {
    uint64_t problem;
    uint64_t workspace;
    uint32_t alignment[4];
    uint64_t index;  // in KINDS
    uint64_t unused[3];
};
static_assert(sizeof(Algorithm) == 64, "as the real one");

/// What differs between algorithms.
struct Kind {
    double time;     // of a product, compared with the first algorithm
    int32_t splits;  // SPLITK_NUM
    bool halves;     // whether two halves are summed apart, or are not where others are: other bits
};

/// The algorithms in the heuristics' order: the first, a slower one and a faster one with its bits, one that is
/// faster still and has other bits, and one that splits sums.
static const Kind KINDS[] = {{1, 1, false}, {2, 1, false}, {0.5, 1, false}, {0.25, 1, true}, {0.125, 2, true}};

/// One product, D = epilogue(alpha op(A) op(B) + beta C). Matrices are stored by columns.
struct Product {
    Operation operation;
    Layout a, b, c, d;
    const void *a_at, *b_at, *c_at;
    void *d_at;
    float alpha, beta;
    bool halves;
};

/// Runs a product that was checked before.
void compute(const Product &product);
