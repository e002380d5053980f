// Descriptors: created, filled attribute by attribute, destroyed. Unknown attributes and wrong sizes are
// refused.
#include "cublaslt.h"
#include <cstddef>
#include <cstring>

struct Field {
    int attribute;
    size_t offset, bytes;
};
#define FIELD(attribute, whole, member) \
    {attribute, offsetof(whole, member), sizeof(((whole *)nullptr)->member)}

static const Field LAYOUT[] = {
    FIELD(0, Layout, type), FIELD(1, Layout, order),   FIELD(2, Layout, rows),         FIELD(3, Layout, cols),
    FIELD(4, Layout, ld),   FIELD(5, Layout, batches), FIELD(6, Layout, batch_stride),
};
static const Field OPERATION[] = {
    FIELD(0, Operation, compute),
    FIELD(1, Operation, scale),
    FIELD(2, Operation, pointer_mode),
    FIELD(3, Operation, transpose_a),
    FIELD(4, Operation, transpose_b),
    FIELD(7, Operation, epilogue),
    FIELD(8, Operation, bias),
    FIELD(10, Operation, bias_batch_stride),
    FIELD(11, Operation, aux),
    FIELD(12, Operation, aux_ld),
    FIELD(13, Operation, aux_batch_stride),
    FIELD(22, Operation, aux_type),
    FIELD(26, Operation, bias_type),
};
static const Field PREFERENCE[] = {
    FIELD(0, Preference, search),       FIELD(1, Preference, workspace),    FIELD(3, Preference, reductions),
    FIELD(5, Preference, alignment[0]), FIELD(6, Preference, alignment[1]),
    FIELD(7, Preference, alignment[2]), FIELD(8, Preference, alignment[3]),
};

template <size_t N>
static Status set(const char *what, const Field (&fields)[N], void *into, int attribute, const void *value,
                  size_t bytes) {
    for (const Field &field : fields) {
        if (field.attribute != attribute) continue;
        if (bytes != field.bytes || !value)
            return FAIL(INVALID_VALUE, "%s attribute %d takes %zu bytes, not %zu", what, attribute,
                        field.bytes, bytes);
        memcpy((char *)into + field.offset, value, bytes);
        return SUCCESS;
    }
    return FAIL(NOT_SUPPORTED, "%s attribute %d", what, attribute);
}

API Status cublasLtMatrixLayoutInit_internal(Layout *layout, size_t bytes, Type type, uint64_t rows,
                                             uint64_t cols, int64_t ld) {
    if (bytes < sizeof(Layout)) return INVALID_VALUE;
    *layout = {type, 0, rows, cols, ld, 0, 1};
    return SUCCESS;
}

API Status cublasLtMatrixLayoutCreate(Layout **layout, Type type, uint64_t rows, uint64_t cols, int64_t ld) {
    *layout = new Layout;
    return cublasLtMatrixLayoutInit_internal(*layout, sizeof(Layout), type, rows, cols, ld);
}

API Status cublasLtMatrixLayoutSetAttribute(Layout *layout, int attribute, const void *value, size_t bytes) {
    return set("layout", LAYOUT, layout, attribute, value, bytes);
}

API Status cublasLtMatrixLayoutDestroy(Layout *layout) { return delete layout, SUCCESS; }

API Status cublasLtMatmulDescInit_internal(Operation *operation, size_t bytes, Compute compute, Type scale) {
    if (bytes < sizeof(Operation)) return INVALID_VALUE;
    *operation = {compute, scale, 0, 0, 0, DEFAULT, nullptr, nullptr, 0, 0, 0, UNSET, UNSET};
    return SUCCESS;
}

API Status cublasLtMatmulDescCreate(Operation **operation, Compute compute, Type scale) {
    *operation = new Operation;
    return cublasLtMatmulDescInit_internal(*operation, sizeof(Operation), compute, scale);
}

API Status cublasLtMatmulDescSetAttribute(Operation *operation, int attribute, const void *value,
                                          size_t bytes) {
    return set("operation", OPERATION, operation, attribute, value, bytes);
}

API Status cublasLtMatmulDescDestroy(Operation *operation) { return delete operation, SUCCESS; }

API Status cublasLtMatmulPreferenceInit_internal(Preference *preference, size_t bytes) {
    if (bytes < sizeof(Preference)) return INVALID_VALUE;
    *preference = {0, {256, 256, 256, 256}, 0, 0};
    return SUCCESS;
}

API Status cublasLtMatmulPreferenceCreate(Preference **preference) {
    *preference = new Preference;
    return cublasLtMatmulPreferenceInit_internal(*preference, sizeof(Preference));
}

API Status cublasLtMatmulPreferenceSetAttribute(Preference *preference, int attribute, const void *value,
                                                size_t bytes) {
    return set("preference", PREFERENCE, preference, attribute, value, bytes);
}

API Status cublasLtMatmulPreferenceDestroy(Preference *preference) { return delete preference, SUCCESS; }

API size_t cublasLtGetVersion() { return 130100; }

API const char *cublasLtGetStatusName(Status status) {
    switch (status) {
    case SUCCESS: return "CUBLAS_STATUS_SUCCESS";
    case NOT_INITIALIZED: return "CUBLAS_STATUS_NOT_INITIALIZED";
    case INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
    case NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
    case EXECUTION_FAILED: return "CUBLAS_STATUS_EXECUTION_FAILED";
    default: return "CUBLAS_STATUS_UNKNOWN";
    }
}

API const char *cublasLtGetStatusString(Status status) { return cublasLtGetStatusName(status); }
