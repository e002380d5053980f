// Products: checked by the rules in the documentation of cublasLtMatmul, then queued on the stream.
#include "cublaslt.h"
#include <algorithm>
#include <atomic>
#include <iterator>
#include <cstring>

extern "C" uint64_t pw_enqueue(void *handle, const char *name, int (*work)(void *), void *argument,
                               void **stream);
extern "C" void pw_touches(const void *start, size_t bytes, int writes);
extern "C" int pw_fails(const char *call);
extern "C" int pw_device_of(void *stream);
extern "C" int pw_current_device();
extern "C" double pw_slowdown(int device);
extern "C" int pw_inside(const void *address, size_t bytes);
extern "C" double pw_clock();
extern "C" void pw_set_clock(double seconds);

static const uint64_t WANTED_WORKSPACE = 64 << 10;

// Of the emulated device, in operations a second: about what the emulator computes.
static const double SPEED = 4e9;

// "The cuBLASLt library context is tied to the current CUDA device."
struct Handle {
    int device;
};
static std::atomic<int> handles;

// How often each algorithm ran.
static std::atomic<uint64_t> runs[std::size(KINDS)];

static size_t bytes_of(Type type) { return type == BF16 ? 2 : 4; }

static bool has_bias(Epilogue epilogue) {
    return epilogue == BIAS || epilogue == GELU_BIAS || epilogue == GELU_AUX_BIAS;
}
static bool has_aux(Epilogue epilogue) {
    return epilogue == GELU_AUX || epilogue == GELU_AUX_BIAS || epilogue == DGELU || epilogue == DGELU_BGRAD;
}
static bool gives_bias_gradient(Epilogue epilogue) {
    return epilogue == DGELU_BGRAD || epilogue == BGRADA || epilogue == BGRADB;
}

static Status check_layout(const char *name, const Layout &layout) {
    if (layout.order != 0) return FAIL(NOT_SUPPORTED, "%s: only columns one after the other", name);
    if (layout.type != F32 && layout.type != BF16)
        return FAIL(NOT_SUPPORTED, "%s: type %d", name, layout.type);
    if (layout.rows == 0 || layout.cols == 0 || layout.ld < (int64_t)layout.rows || layout.batches < 1)
        return FAIL(INVALID_VALUE, "%s: %llu x %llu, leading dimension %lld, %d batches", name,
                    (unsigned long long)layout.rows, (unsigned long long)layout.cols, (long long)layout.ld,
                    layout.batches);
    return SUCCESS;
}

static Status check_shapes(const Operation &operation, const Layout &a, const Layout &b, const Layout &c,
                           const Layout &d) {
    uint64_t m = operation.transpose_a ? a.cols : a.rows, k = operation.transpose_a ? a.rows : a.cols;
    uint64_t kb = operation.transpose_b ? b.cols : b.rows, n = operation.transpose_b ? b.rows : b.cols;
    if (k != kb || d.rows != m || d.cols != n || c.rows != m || c.cols != n)
        return FAIL(INVALID_VALUE, "op(A) %llu x %llu, op(B) %llu x %llu, C %llu x %llu, D %llu x %llu",
                    (unsigned long long)m, (unsigned long long)k, (unsigned long long)kb,
                    (unsigned long long)n, (unsigned long long)c.rows, (unsigned long long)c.cols,
                    (unsigned long long)d.rows, (unsigned long long)d.cols);
    if (a.batches != b.batches || a.batches != c.batches || a.batches != d.batches)
        return FAIL(INVALID_VALUE, "batches of A %d, B %d, C %d, D %d", a.batches, b.batches, c.batches,
                    d.batches);
    return SUCCESS;
}

// The table of supported types: A and B have one type; C and D have one type, A's type or f32; the bias has
// D's type; TF32 is for f32 only.
static Status check_types(const Operation &operation, const Layout &a, const Layout &b, const Layout &c,
                          const Layout &d) {
    bool known = operation.compute == COMPUTE_F32 || operation.compute == COMPUTE_F32_PEDANTIC ||
                 (operation.compute == COMPUTE_TF32 && a.type == F32);
    if (!known || operation.scale != F32 || operation.pointer_mode != 0)
        return FAIL(NOT_SUPPORTED, "compute type %d with A of type %d, scale type %d, pointer mode %d",
                    operation.compute, a.type, operation.scale, operation.pointer_mode);
    if (a.type != b.type || c.type != d.type || (d.type != F32 && d.type != a.type))
        return FAIL(NOT_SUPPORTED, "types of A %d, B %d, C %d, D %d", a.type, b.type, c.type, d.type);
    Epilogue epilogue = operation.epilogue;
    if (epilogue != DEFAULT && epilogue != GELU && !has_bias(epilogue) && !has_aux(epilogue) &&
        !gives_bias_gradient(epilogue))
        return FAIL(NOT_SUPPORTED, "epilogue %u", epilogue);
    if ((has_bias(epilogue) || gives_bias_gradient(epilogue)) && operation.bias_type != UNSET &&
        operation.bias_type != d.type)
        return FAIL(NOT_SUPPORTED, "bias of type %d with D of type %d", operation.bias_type, d.type);
    if (has_aux(epilogue) && operation.aux_type != UNSET && operation.aux_type != d.type)
        return FAIL(NOT_SUPPORTED, "aux of type %d with D of type %d", operation.aux_type, d.type);
    if (gives_bias_gradient(epilogue) && d.batches > 1)
        return FAIL(NOT_SUPPORTED, "a bias gradient of batches");
    return SUCCESS;
}

static Status check(const Operation *operation, const Layout *a, const Layout *b, const Layout *c,
                    const Layout *d) {
    if (!operation || !a || !b || !c || !d) return FAIL(INVALID_VALUE, "a descriptor is missing");
    const Layout *layouts[] = {a, b, c, d};
    const char *const names[] = {"A", "B", "C", "D"};
    for (int i = 0; i < 4; i++)
        if (Status status = check_layout(names[i], *layouts[i])) return status;
    if (Status status = check_types(*operation, *a, *b, *c, *d)) return status;
    if (Status status = check_shapes(*operation, *a, *b, *c, *d)) return status;
    // The documented rule for GELU's aux. The heuristic may be asked before the pointers are known.
    if (has_aux(operation->epilogue) && (operation->aux_ld % 8 != 0 || operation->aux_ld < (int64_t)d->rows))
        return FAIL(NOT_SUPPORTED, "leading dimension %lld of aux: at least %llu and a multiple of 8",
                    (long long)operation->aux_ld, (unsigned long long)d->rows);
    return SUCCESS;
}

// A hash of everything that the choice of an algorithm depends on.
static uint64_t problem(const Operation &operation, const Layout *const (&layouts)[4]) {
    uint64_t hash = 14695981039346656037u;
    auto add = [&](uint64_t value) { hash = (hash ^ value) * 1099511628211u; };
    for (int32_t value : {(int32_t)operation.compute, operation.transpose_a, operation.transpose_b,
                          (int32_t)operation.epilogue})
        add((uint32_t)value);
    for (const Layout *layout : layouts)
        for (uint64_t value : {(uint64_t)layout->type, layout->rows, layout->cols, (uint64_t)layout->ld,
                               (uint64_t)layout->batches})
            add(value);
    return hash;
}

struct Heuristic {
    Algorithm algorithm;
    size_t workspace;
    Status state;
    float waves;
    int reserved[4];
};

API Status cublasLtMatmulAlgoGetHeuristic(void *, const Operation *operation, const Layout *a,
                                          const Layout *b, const Layout *c, const Layout *d,
                                          const Preference *preference, int wanted, Heuristic *results,
                                          int *found) {
    if (!preference || wanted < 1 || !results || !found)
        return FAIL(INVALID_VALUE, "no place for a heuristic's results");
    *found = 0;
    if (pw_fails(__func__)) return EXECUTION_FAILED;
    if (Status status = check(operation, a, b, c, d)) return status;
    uint64_t workspace = std::min(preference->workspace, WANTED_WORKSPACE);
    *found = std::min(wanted, (int)std::size(KINDS));
    for (int i = 0; i < *found; i++) {
        Algorithm algorithm = {problem(*operation, {a, b, c, d}), workspace, {}, (uint64_t)i, {}};
        memcpy(algorithm.alignment, preference->alignment, sizeof preference->alignment);
        results[i] = {algorithm, workspace, SUCCESS, 1.0f, {}};
    }
    return SUCCESS;
}

API Status cublasLtMatmulAlgoConfigGetAttribute(const Algorithm *algorithm, int attribute, void *value,
                                                size_t bytes, size_t *written) {
    if (attribute != 2 || bytes != sizeof(int32_t) || !value)
        return FAIL(NOT_SUPPORTED, "attribute %d of an algorithm, of %zu bytes", attribute, bytes);
    memcpy(value, &KINDS[algorithm->index].splits, bytes);
    if (written) *written = bytes;
    return SUCCESS;
}

// For tests: how often an algorithm ran, by its place in the heuristics.
API uint64_t pw_runs(int index) { return runs[index]; }

static size_t extent(const Layout &layout) {
    size_t one = (layout.cols - 1) * (size_t)layout.ld + layout.rows;
    return ((size_t)(layout.batches - 1) * (size_t)layout.batch_stride + one) * bytes_of(layout.type);
}

static Layout aux_of(const Product &product) {
    const Operation &operation = product.operation;
    return {product.d.type, 0, product.d.rows, product.d.cols, operation.aux_ld, operation.aux_batch_stride,
            product.d.batches};
}

static Status check_pointers(const Product &product, const Algorithm *algorithm, const void *workspace,
                             size_t workspace_bytes) {
    const Layout *layouts[] = {&product.a, &product.b, &product.c, &product.d};
    const void *pointers[] = {product.a_at, product.b_at, product.c_at, product.d_at};
    for (int i = 0; i < 4; i++) {
        char name = "ABCD"[i];
        uint32_t alignment = algorithm ? algorithm->alignment[i] : (uint32_t)bytes_of(layouts[i]->type);
        if (!pointers[i]) return FAIL(INVALID_VALUE, "%c is null", name);
        if ((uintptr_t)pointers[i] % alignment)
            return FAIL(NOT_SUPPORTED, "%c is not aligned to %u bytes as preferred", name, alignment);
        if (!pw_inside(pointers[i], extent(*layouts[i])))
            return FAIL(EXECUTION_FAILED, "%c is not %zu bytes of one live allocation", name,
                        extent(*layouts[i]));
    }
    if (product.c_at == product.d_at && product.c.ld != product.d.ld)
        return FAIL(INVALID_VALUE, "C in place of D, of another layout");
    const Operation &operation = product.operation;
    bool bias = has_bias(operation.epilogue) || gives_bias_gradient(operation.epilogue);
    size_t length = operation.epilogue == BGRADB ? product.d.cols : product.d.rows;
    if (bias && (!operation.bias || !pw_inside(operation.bias, length * bytes_of(product.d.type))))
        return FAIL(INVALID_VALUE, "the bias is not %zu numbers of one live allocation", length);
    if (has_aux(operation.epilogue)) {
        Layout aux = aux_of(product);
        if (!operation.aux || (uintptr_t)operation.aux % 16 || !pw_inside(operation.aux, extent(aux)))
            return FAIL(INVALID_VALUE, "aux is not %zu bytes of one live allocation, aligned to 16",
                        extent(aux));
    }
    if (workspace_bytes &&
        (!workspace || (uintptr_t)workspace % 256 || !pw_inside(workspace, workspace_bytes)))
        return FAIL(INVALID_VALUE, "the workspace is not %zu bytes of one live allocation, aligned to 256",
                    workspace_bytes);
    if (algorithm && workspace_bytes < algorithm->workspace)
        return FAIL(INVALID_VALUE, "a workspace of %zu bytes: the algorithm needs %llu", workspace_bytes,
                    (unsigned long long)algorithm->workspace);
    return SUCCESS;
}

struct Job {
    int device;
    Product product;
    size_t algorithm;
    void *workspace;
    size_t workspace_bytes;
};

static double operations(const Product &product) {
    uint64_t k = product.operation.transpose_a ? product.a.rows : product.a.cols;
    return 2.0 * (double)(product.d.rows * product.d.cols * k) * product.d.batches;
}

// Tells the driver which memory a product uses.
static void touch(const Job &job) {
    const Product &product = job.product;
    const Operation &operation = product.operation;
    const Layout &d = product.d;
    pw_touches(product.a_at, extent(product.a), false);
    pw_touches(product.b_at, extent(product.b), false);
    if (product.beta != 0) pw_touches(product.c_at, extent(product.c), false);
    pw_touches(product.d_at, extent(d), true);
    if (has_bias(operation.epilogue)) pw_touches(operation.bias, d.rows * bytes_of(d.type), false);
    if (gives_bias_gradient(operation.epilogue))
        pw_touches(operation.bias, (operation.epilogue == BGRADB ? d.cols : d.rows) * bytes_of(d.type), true);
    if (has_aux(operation.epilogue)) {
        bool writes = operation.epilogue == GELU_AUX || operation.epilogue == GELU_AUX_BIAS;
        pw_touches(operation.aux, extent(aux_of(product)), writes);
    }
    if (job.workspace_bytes) pw_touches(job.workspace, job.workspace_bytes, true);
}

static int work(void *argument) {
    Job *job = (Job *)argument;
    touch(*job);
    // Overwrites the workspace, as the real product does.
    if (job->workspace_bytes)
        memset(job->workspace, 0xFF, std::min(job->workspace_bytes, (size_t)WANTED_WORKSPACE));
    double start = pw_clock();
    compute(job->product);
    // By the device's clock it takes as long as the algorithm says, whatever else the machine does meanwhile.
    double seconds = KINDS[job->algorithm].time * operations(job->product) / SPEED;
    pw_set_clock(start + seconds * pw_slowdown(job->device));
    runs[job->algorithm]++;
    delete job;
    return 1;
}

API Status cublasLtMatmul(Handle *handle, const Operation *operation, const float *alpha, const void *a_at,
                          const Layout *a, const void *b_at, const Layout *b, const float *beta,
                          const void *c_at, const Layout *c, void *d_at, const Layout *d,
                          const Algorithm *algorithm, void *workspace, size_t workspace_bytes, void *stream) {
    if (pw_fails(__func__)) return EXECUTION_FAILED;
    if (!handle || !alpha || !beta) return FAIL(INVALID_VALUE, "no handle, alpha or beta");
    if (handle->device != pw_device_of(stream))
        return FAIL(INVALID_VALUE, "a handle of device %d, and a stream of device %d", handle->device,
                    pw_device_of(stream));
    if (Status status = check(operation, a, b, c, d)) return status;
    Product product = {*operation, *a, *b, *c, *d, a_at, b_at, c_at, d_at, *alpha, *beta, false};
    size_t index = algorithm ? algorithm->index : 0;
    // A product of another size may be summed in another order.
    bool other_order = problem(*operation, {a, b, c, d}) >> 32 & 1;
    product.halves = KINDS[index].halves != other_order;
    if (Status status = check_pointers(product, algorithm, workspace, workspace_bytes)) return status;
    if (algorithm && algorithm->problem != problem(*operation, {a, b, c, d}))
        return FAIL(INVALID_VALUE, "the algorithm was found for another problem");
    Job *job = new Job{handle->device, product, index, workspace, workspace_bytes};
    if (!pw_enqueue(stream, "cublasLtMatmul", work, job, &stream))
        return FAIL(EXECUTION_FAILED, "the stream or its context is not usable");
    return SUCCESS;
}

API Status cublasLtCreate(Handle **handle) {
    if (pw_fails(__func__)) return NOT_INITIALIZED;
    int device;
    if ((device = pw_current_device()) < 0) return FAIL(NOT_INITIALIZED, "no context is current");
    handles++;
    return *handle = new Handle{device}, SUCCESS;
}

API Status cublasLtDestroy(Handle *handle) {
    handles--;
    return delete handle, SUCCESS;
}

// For tests: how many handles there are.
API int pw_blas_handles() { return handles; }
