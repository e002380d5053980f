// Maps of tensors, and loads of boxes of them. Sources: CUDA Driver API, "Tensor Map Object Management"; PTX
// ISA, "Tensors" and "cp.async.bulk.tensor".
#include "hopper.h"
#include "../driver/watch.h"
#include <cstring>

static const uint64_t MAGIC = 0x70772074656e736f;

enum { BFLOAT16 = 9, INTERLEAVE_NONE = 0, SWIZZLE_128B = 3, PROMOTION_256B = 3, FILL_NONE = 0 };

uint64_t Tensor::bytes() const {
    uint64_t last = 2 * sizes[0];
    for (int i = 0; i < 3; i++) last += (sizes[i + 1] - 1) * strides[i];
    return last;
}

const Tensor *tensor_at(const void *address) {
    auto *tensor = (const Tensor *)address;
    return tensor->magic == MAGIC ? tensor : nullptr;
}

// The swizzles of the driver: none, 32, 64 and 128 bytes.
static unsigned row_of(int swizzle) { return swizzle == 0 ? 16 : 16u << swizzle; }

static const char *what_is_wrong(const Tensor &tensor, int swizzle) {
    if (tensor.start() % 16) return "the address is not a multiple of 16";
    for (uint64_t size : tensor.sizes)
        if (size == 0 || size > 1ull << 32) return "a size is not 1 to 2^32";
    for (uint64_t stride : tensor.strides)
        if (stride % 16 || stride >= 1ull << 40) return "a stride is not a multiple of 16, or is 2^40 or more";
    for (uint32_t box : tensor.box)
        if (box == 0 || box > 256) return "a side of the box is not 1 to 256";
    if (tensor.box[0] * 2 % 16) return "the rows of the box are no multiple of 16 bytes";
    if (swizzle && tensor.box[0] * 2 > tensor.row) return "the rows of the box are longer than the swizzle";
    return nullptr;
}

API CUresult cuTensorMapEncodeTiled(void *map, int type, uint32_t rank, void *start, const uint64_t *sizes,
                                    const uint64_t *strides, const uint32_t *box, const uint32_t *steps,
                                    int interleave, int swizzle, int promotion, int fill) {
    MAY_FAIL;
    Lock lock(machine());
    if (!map || (uintptr_t)map % 64) return FAIL(INVALID_VALUE, "cuTensorMapEncodeTiled: no place for a map");
    if (type != BFLOAT16 || rank != 4 || interleave != INTERLEAVE_NONE || fill != FILL_NONE)
        return FAIL(NOT_SUPPORTED, "cuTensorMapEncodeTiled: here only of bf16, four dimensions, as they are");
    if (swizzle < 0 || swizzle > SWIZZLE_128B || promotion < 0 || promotion > PROMOTION_256B)
        return FAIL(NOT_SUPPORTED, "cuTensorMapEncodeTiled: swizzle %d, promotion %d", swizzle, promotion);
    Tensor tensor = {.magic = MAGIC, .hidden = ~(uint64_t)start, .sizes = {}, .strides = {}, .box = {},
                     .row = row_of(swizzle)};
    memcpy(tensor.sizes, sizes, sizeof tensor.sizes);
    memcpy(tensor.strides, strides, sizeof tensor.strides);
    memcpy(tensor.box, box, sizeof tensor.box);
    if (const char *wrong = what_is_wrong(tensor, swizzle))
        return FAIL(INVALID_VALUE, "cuTensorMapEncodeTiled: %s", wrong);
    for (int i = 0; i < 4; i++)
        if (steps[i] != 1) return FAIL(NOT_SUPPORTED, "cuTensorMapEncodeTiled: here only steps of 1");
    // What rows do that are shorter than the swizzle, no manual says.
    if (swizzle && tensor.box[0] * 2 != tensor.row)
        return FAIL(NOT_SUPPORTED, "cuTensorMapEncodeTiled: here only rows as long as the swizzle");
    memset(map, 0, 128);
    memcpy(map, &tensor, sizeof tensor);
    return SUCCESS;
}

static const Tensor &checked(const void *map, const char *what) {
    if ((uintptr_t)map % 64) give_up(text("%s: the map's address is not a multiple of 64", what));
    const Tensor *tensor = tensor_at(map);
    if (!tensor) give_up(text("%s: this is no map that cuTensorMapEncodeTiled made", what));
    return *tensor;
}

void tensor_prefetch(const void *map) { checked(map, "tensor_prefetch"); }

void tensor_load(unsigned to, const void *map, unsigned barrier, const int *coordinates) {
    const Tensor &tensor = checked(map, "tensor_load");
    // The swizzle's pattern begins at a multiple of 8 rows.
    unsigned pattern = tensor.row == 16 ? 128 : tensor.row * 8;
    if (to % 128) give_up(text("tensor_load: %u is not a multiple of 128", to));
    if (to % pattern)
        give_up(text("tensor_load: %u is not a multiple of %u, where the swizzle's pattern begins", to, pattern));
    Load load = {tensor, to, {}};
    memcpy(load.from, coordinates, sizeof load.from);
    begin_load(barrier, load);
}

// Copies a row of the box. What is outside of the tensor is zero.
static void land_row(const Load &load, uint64_t row, unsigned char *shared) {
    const Tensor &tensor = load.tensor;
    CUdeviceptr start = tensor.start();
    bool outside = false;
    uint64_t rest = row;
    for (int i = 1; i < 4; i++) {
        int64_t at = load.from[i] + (int64_t)(rest % tensor.box[i]);
        rest /= tensor.box[i];
        outside |= at < 0 || at >= (int64_t)tensor.sizes[i];
        start += at * tensor.strides[i - 1];
    }
    for (uint32_t i = 0; i < tensor.box[0]; i++) {
        int64_t at = load.from[0] + (int64_t)i;
        uint16_t number = 0;
        if (!outside && at >= 0 && at < (int64_t)tensor.sizes[0]) {
            watch_read(start + 2 * at, 2);
            memcpy(&number, (void *)(start + 2 * at), 2);
        }
        memcpy(shared + swizzled(load.to + (row * tensor.box[0] + i) * 2, tensor.row), &number, 2);
    }
}

void land(const Load &load) {
    unsigned char *shared = shared_at(0, 0, "");
    for (uint64_t row = 0; row < load.tensor.box_bytes() / 2 / load.tensor.box[0]; row++)
        land_row(load, row, shared);
    watch_landed(load.to, load.tensor.box_bytes());
}
