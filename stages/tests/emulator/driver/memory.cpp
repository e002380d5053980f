// Memory. Every allocation lies between two guards, which are checked when it is freed. New and freed memory
// is filled with bytes 0xFF, which are NaN as f32 and as bf16.
#include "driver.h"
#include <cstdlib>
#include <cstring>
#include <map>

static const size_t GUARD = 256;
static const int POISON = 0xFF, GUARD_BYTE = 0xA5;

struct Block {
    size_t bytes;
    Device *device;
    bool ordered;  // from cuMemAllocAsync
};
static std::map<CUdeviceptr, Block> &blocks = *new std::map<CUdeviceptr, Block>;
static std::map<uintptr_t, size_t> &pinned_blocks = *new std::map<uintptr_t, size_t>;

// Freed blocks stay here for a while, filled with 0xFF. So late reads give NaN, and late writes are found.
static std::deque<std::pair<CUdeviceptr, Block>> &resting = *new std::deque<std::pair<CUdeviceptr, Block>>;
static size_t resting_bytes = 0;
static const size_t MOST_RESTING = 256 << 20;

static void *address(CUdeviceptr pointer) { return (void *)(uintptr_t)pointer; }

bool inside(CUdeviceptr pointer, size_t bytes) {
    auto after = blocks.upper_bound(pointer);
    if (after == blocks.begin()) return false;
    auto &[start, block] = *std::prev(after);
    return pointer + bytes <= start + block.bytes;
}

Device *device_of(CUdeviceptr pointer) { return std::prev(blocks.upper_bound(pointer))->second.device; }

bool pinned(const void *pointer, size_t bytes) {
    auto after = pinned_blocks.upper_bound((uintptr_t)pointer);
    if (after == pinned_blocks.begin()) return false;
    auto &[start, length] = *std::prev(after);
    return (uintptr_t)pointer + bytes <= start + length;
}

static CUresult allocate(CUdeviceptr *pointer, size_t bytes, bool ordered) {
    if (CUresult result = usable()) return result;
    Device *device = current();
    if (bytes == 0) return FAIL(INVALID_VALUE, "an allocation of no bytes");
    if (bytes > device->memory - device->used) return OUT_OF_MEMORY;
    size_t whole = GUARD + (bytes + GUARD - 1) / GUARD * GUARD + GUARD;
    char *base = (char *)aligned_alloc(GUARD, whole);
    if (!base) return OUT_OF_MEMORY;
    memset(base, GUARD_BYTE, GUARD);
    memset(base + GUARD + bytes, GUARD_BYTE, whole - GUARD - bytes);
    *pointer = (uintptr_t)(base + GUARD);
    memset(address(*pointer), POISON, bytes);
    blocks[*pointer] = {bytes, device, ordered};
    device->used += bytes;
    if (device->used > device->most_used) device->most_used = device->used;
    return SUCCESS;
}

// Marks the block as freed: nothing may use it from here on. `release` frees the memory later, when the
// stream reaches it.
static bool retire(CUdeviceptr pointer, Block &block) {
    auto found = blocks.find(pointer);
    if (found == blocks.end()) return false;
    block = found->second;
    blocks.erase(found);
    block.device->used -= block.bytes;
    return true;
}

static void bury() {
    auto [pointer, block] = resting.front();
    resting.pop_front();
    resting_bytes -= block.bytes;
    auto *start = (unsigned char *)address(pointer);
    if (std::any_of(start, start + block.bytes, [](unsigned char byte) { return byte != POISON; }))
        broken(block.device,
               FAIL(ILLEGAL_ADDRESS, "written to an allocation of %zu bytes after it was freed",
                    block.bytes));
    free(start - GUARD);
}

static void release(CUdeviceptr pointer, const Block &block) {
    auto *start = (unsigned char *)address(pointer);
    size_t tail = (block.bytes + GUARD - 1) / GUARD * GUARD + GUARD;
    for (size_t i = 0; i < GUARD; i++)
        if (start[-1 - (ptrdiff_t)i] != GUARD_BYTE)
            return broken(block.device,
                          FAIL(ILLEGAL_ADDRESS, "written before an allocation of %zu bytes", block.bytes));
    for (size_t i = block.bytes; i < tail; i++)
        if (start[i] != GUARD_BYTE)
            return broken(block.device,
                          FAIL(ILLEGAL_ADDRESS,
                               "written %zu bytes past the end of an allocation of %zu bytes",
                               i + 1 - block.bytes, block.bytes));
    memset(start, POISON, block.bytes);
    resting.push_back({pointer, block});
    resting_bytes += block.bytes;
    while (resting_bytes > MOST_RESTING) bury();
}

API CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes) {
    Lock lock(machine());
    return allocate(pointer, bytes, false);
}

// Waits for the device, except for memory of cuMemAllocAsync: the documentation leaves that to the caller.
API CUresult cuMemFree_v2(CUdeviceptr pointer) {
    Block block;
    {
        Lock lock(machine());
        if (!retire(pointer, block))
            return FAIL(INVALID_VALUE, "cuMemFree of what was not allocated, or freed twice");
    }
    if (!block.ordered)
        if (CUresult result = wait_all(block.device)) return result;
    Lock lock(machine());
    release(pointer, block);
    return block.device->error;
}

API CUresult cuMemAllocAsync(CUdeviceptr *pointer, size_t bytes, void *handle) {
    Lock lock(machine());
    Stream *stream = stream_of(handle);
    if (!stream) return FAIL(INVALID_HANDLE, "cuMemAllocAsync on no stream");
    if (CUresult result = allocate(pointer, bytes, true)) return result;
    // Filled again when the stream reaches the allocation. So a stream that did not wait for it loses what it
    // wrote.
    void *start = address(*pointer);
    enqueue(stream, [=] { return memset(start, POISON, bytes), Progress::Done; });
    return SUCCESS;
}

API CUresult cuMemFreeAsync(CUdeviceptr pointer, void *handle) {
    Lock lock(machine());
    Stream *stream = stream_of(handle);
    Block block;
    if (!stream) return FAIL(INVALID_HANDLE, "cuMemFreeAsync on no stream");
    if (!retire(pointer, block))
        return FAIL(INVALID_VALUE, "cuMemFreeAsync of what was not allocated, or freed twice");
    enqueue(stream, [=] { return release(pointer, block), Progress::Done; });
    return SUCCESS;
}

API CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
    Lock lock(machine());
    if (CUresult result = usable()) return result;
    *total = current()->memory;
    *free_bytes = current()->memory - current()->used;
    return SUCCESS;
}

API CUresult cuMemHostAlloc(void **pointer, size_t bytes, unsigned) {
    Lock lock(machine());
    if (CUresult result = usable()) return result;
    *pointer = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    if (bytes == 0 || !*pointer) return FAIL(INVALID_VALUE, "cuMemHostAlloc of %zu bytes", bytes);
    memset(*pointer, POISON, bytes);
    pinned_blocks[(uintptr_t)*pointer] = bytes;
    return SUCCESS;
}

// Waits for all devices first, as the real function does, because a transfer may still use the memory.
API CUresult cuMemFreeHost(void *pointer) {
    for (Device *device : devices())
        if (CUresult result = wait_all(device)) return result;
    Lock lock(machine());
    if (!pinned_blocks.erase((uintptr_t)pointer))
        return FAIL(INVALID_VALUE, "cuMemFreeHost of what was not allocated");
    free(pointer);
    return SUCCESS;
}

// The default pool of a device. Its handle is the device.
API CUresult cuDeviceGetDefaultMemPool(Device **pool, int ordinal) {
    if (ordinal < 0 || ordinal >= (int)devices().size()) return INVALID_DEVICE;
    *pool = devices()[ordinal];
    return SUCCESS;
}

API CUresult cuDeviceGetMemPool(Device **pool, int ordinal) {
    return cuDeviceGetDefaultMemPool(pool, ordinal);
}

enum { REUSE_FIRST = 1, REUSE_LAST = 3, RELEASE_THRESHOLD = 4, RESERVED = 5, RESERVED_HIGH = 6, USED = 7,
      USED_HIGH = 8 };

API CUresult cuMemPoolSetAttribute(Device *pool, int attribute, void *value) {
    Lock lock(machine());
    if (attribute >= REUSE_FIRST && attribute <= REUSE_LAST) return SUCCESS;
    if (attribute == RELEASE_THRESHOLD) return pool->release_threshold = *(uint64_t *)value, SUCCESS;
    if (attribute == RESERVED_HIGH || attribute == USED_HIGH) return pool->most_used = pool->used, SUCCESS;
    return FAIL(INVALID_VALUE, "cuMemPoolSetAttribute of attribute %d", attribute);
}

API CUresult cuMemPoolGetAttribute(Device *pool, int attribute, void *value) {
    Lock lock(machine());
    if (attribute == RELEASE_THRESHOLD) return *(uint64_t *)value = pool->release_threshold, SUCCESS;
    if (attribute == RESERVED || attribute == USED) return *(uint64_t *)value = pool->used, SUCCESS;
    if (attribute == RESERVED_HIGH || attribute == USED_HIGH)
        return *(uint64_t *)value = pool->most_used, SUCCESS;
    return FAIL(INVALID_VALUE, "cuMemPoolGetAttribute of attribute %d", attribute);
}

API CUresult cuMemPoolTrimTo(Device *, size_t) { return SUCCESS; }

/// The part of `CUmemAccessDesc` that is read here.
struct Access {
    int type, device, flags;
};

API CUresult cuMemPoolSetAccess(Device *pool, const Access *accesses, size_t count) {
    Lock lock(machine());
    for (size_t i = 0; i < count; i++) pool->mapped_on.push_back(accesses[i].device);
    return SUCCESS;
}

// For the emulated cuBLASLt and NCCL: whether `bytes` at `address` lie inside one live allocation.
API int pw_inside(const void *start, size_t bytes) {
    Lock lock(machine());
    return inside((uintptr_t)start, bytes);
}
