// Memory. Every allocation lies between two guards, which are checked when it is freed. New and freed memory
// is filled with bytes 0xFF, which are NaN as f32 and as bf16.
#include "driver.h"
#include <cstring>

static const size_t GUARD = 256;
static const int POISON = 0xFF, GUARD_BYTE = 0xA5;

// Freed allocations stay for a while, filled with 0xFF. So late reads give NaN, and late writes are found.
static std::deque<std::shared_ptr<Allocation>> &resting = *new std::deque<std::shared_ptr<Allocation>>;
static size_t resting_bytes = 0;
static const size_t MOST_RESTING = 256 << 20;
static uint64_t made = 0;

static void *address(CUdeviceptr pointer) { return (void *)(uintptr_t)pointer; }

static std::shared_ptr<Allocation> live_at(CUdeviceptr pointer) {
    auto allocation = allocation_of(pointer);
    return allocation && allocation->live ? allocation : nullptr;
}

bool inside(CUdeviceptr pointer, size_t bytes) {
    auto allocation = live_at(pointer);
    return allocation && allocation->device && pointer + bytes <= allocation->start + allocation->bytes;
}

bool pinned(const void *pointer, size_t bytes) {
    auto allocation = live_at((uintptr_t)pointer);
    return allocation && !allocation->device &&
           (uintptr_t)pointer + bytes <= allocation->start + allocation->bytes;
}

static size_t tail_of(size_t bytes) { return (bytes + GUARD - 1) / GUARD * GUARD + GUARD; }

static std::shared_ptr<Allocation> make(size_t bytes, Device *device, bool ordered) {
    char *base = (char *)take_addresses(GUARD + tail_of(bytes));
    if (!base) return nullptr;
    memset(base, GUARD_BYTE, GUARD);
    memset(base + GUARD, POISON, bytes);
    memset(base + GUARD + bytes, GUARD_BYTE, tail_of(bytes) - bytes);
    CUdeviceptr start = (uintptr_t)(base + GUARD);
    auto allocation = std::make_shared<Allocation>(Allocation{start, bytes, device, ordered});
    allocation->number = ++made;
    return allocations()[start] = allocation;
}

static CUresult allocate(CUdeviceptr *pointer, size_t bytes, Device *device, bool ordered) {
    if (bytes == 0) return FAIL(INVALID_VALUE, "an allocation of no bytes");
    if (bytes > device->memory - device->used) return OUT_OF_MEMORY;
    auto allocation = make(bytes, device, ordered);
    if (!allocation) return OUT_OF_MEMORY;
    *pointer = allocation->start;
    device->used += bytes;
    device->most_used = std::max(device->most_used, device->used);
    return SUCCESS;
}

// Marks the allocation as freed: the host may not name it from here on. `release` frees the memory, when the
// stream reaches it.
static std::shared_ptr<Allocation> retire(CUdeviceptr pointer) {
    auto allocation = live_at(pointer);
    if (!allocation || !allocation->device || allocation->start != pointer) return nullptr;
    allocation->live = false;
    allocation->device->used -= allocation->bytes;
    return allocation;
}

static void bury() {
    auto allocation = resting.front();
    resting.pop_front();
    resting_bytes -= allocation->bytes;
    auto *start = (unsigned char *)address(allocation->start);
    // Each byte equals the next one.
    if (*start != POISON || memcmp(start, start + 1, allocation->bytes - 1) != 0)
        complain(allocation->device, ILLEGAL_ADDRESS,
                 text("written to an allocation of %zu bytes after it was freed", allocation->bytes));
    allocations().erase(allocation->start);
    give_addresses(start - GUARD, GUARD + tail_of(allocation->bytes));
}

static void check_guards(const Allocation &allocation) {
    auto *start = (unsigned char *)address(allocation.start);
    for (size_t i = 0; i < GUARD; i++)
        if (start[-1 - (ptrdiff_t)i] != GUARD_BYTE)
            return complain(allocation.device, ILLEGAL_ADDRESS,
                            text("written before an allocation of %zu bytes", allocation.bytes));
    for (size_t i = allocation.bytes; i < tail_of(allocation.bytes); i++)
        if (start[i] != GUARD_BYTE)
            return complain(allocation.device, ILLEGAL_ADDRESS,
                            text("written %zu bytes past the end of an allocation of %zu bytes",
                                 i + 1 - allocation.bytes, allocation.bytes));
}

static void release(const std::shared_ptr<Allocation> &allocation) {
    check_guards(*allocation);
    memset(address(allocation->start), POISON, allocation->bytes);
    allocation->freed = true;
    resting.push_back(allocation);
    resting_bytes += allocation->bytes;
    while (resting_bytes > MOST_RESTING) bury();
}

API CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes) {
    MAY_FAIL;
    Lock lock(machine());
    if (CUresult result = usable()) return result;
    return allocate(pointer, bytes, current(), false);
}

// Waits for the device, except for memory of cuMemAllocAsync: the documentation leaves that to the caller.
API CUresult cuMemFree_v2(CUdeviceptr pointer) {
    MAY_FAIL;
    std::shared_ptr<Allocation> allocation;
    {
        Lock lock(machine());
        if (!(allocation = retire(pointer)))
            return FAIL(INVALID_VALUE, "cuMemFree of what was not allocated, or freed twice");
    }
    if (!allocation->ordered)
        if (CUresult result = wait_all(allocation->device)) return result;
    Lock lock(machine());
    freed_by_host(*allocation);
    release(allocation);
    return allocation->device->error;
}

API CUresult cuMemAllocAsync(CUdeviceptr *pointer, size_t bytes, void *handle) {
    MAY_FAIL;
    Lock lock(machine());
    if (CUresult result = usable()) return result;
    Stream *stream = stream_of(handle);
    if (!stream) return FAIL(INVALID_HANDLE, "cuMemAllocAsync on no stream");
    if (CUresult result = allocate(pointer, bytes, stream->device, true)) return result;
    // Filled again when the stream reaches the allocation. So a stream that did not wait for it loses what it
    // wrote.
    CUdeviceptr start = *pointer;
    enqueue(stream, "cuMemAllocAsync", [=] {
        touches(start, bytes, true);
        return memset(address(start), POISON, bytes), Progress::Done;
    });
    return SUCCESS;
}

API CUresult cuMemFreeAsync(CUdeviceptr pointer, void *handle) {
    MAY_FAIL;
    Lock lock(machine());
    Stream *stream = stream_of(handle);
    if (!stream) return FAIL(INVALID_HANDLE, "cuMemFreeAsync on no stream");
    auto allocation = retire(pointer);
    if (!allocation)
        return FAIL(INVALID_VALUE, "cuMemFreeAsync of what was not allocated, or freed twice");
    enqueue(stream, "cuMemFreeAsync", [=] {
        touches(allocation->start, allocation->bytes, true);
        return release(allocation), Progress::Done;
    });
    return SUCCESS;
}

API CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
    MAY_FAIL;
    Lock lock(machine());
    if (CUresult result = usable()) return result;
    *total = current()->memory;
    *free_bytes = current()->memory - current()->used;
    return SUCCESS;
}

API CUresult cuMemHostAlloc(void **pointer, size_t bytes, unsigned) {
    MAY_FAIL;
    Lock lock(machine());
    if (CUresult result = usable()) return result;
    auto allocation = bytes ? make(bytes, nullptr, false) : nullptr;
    if (!allocation) return FAIL(INVALID_VALUE, "cuMemHostAlloc of %zu bytes", bytes);
    *pointer = address(allocation->start);
    return SUCCESS;
}

// Waits for all devices first, as the real function does, because a transfer may still use the memory.
API CUresult cuMemFreeHost(void *pointer) {
    MAY_FAIL;
    for (Device *device : devices())
        if (CUresult result = wait_all(device)) return result;
    Lock lock(machine());
    auto allocation = live_at((uintptr_t)pointer);
    if (!allocation || allocation->device || allocation->start != (uintptr_t)pointer)
        return FAIL(INVALID_VALUE, "cuMemFreeHost of what was not allocated");
    check_guards(*allocation);
    allocations().erase(allocation->start);
    give_addresses((char *)pointer - GUARD, GUARD + tail_of(allocation->bytes));
    return SUCCESS;
}

// The default pool of a device. Its handle is the device.
API CUresult cuDeviceGetDefaultMemPool(Device **pool, int ordinal) {
    MAY_FAIL;
    if (ordinal < 0 || ordinal >= (int)devices().size()) return INVALID_DEVICE;
    *pool = devices()[ordinal];
    return SUCCESS;
}

API CUresult cuDeviceGetMemPool(Device **pool, int ordinal) {
    MAY_FAIL;
    return cuDeviceGetDefaultMemPool(pool, ordinal);
}

enum { REUSE_FIRST = 1, REUSE_LAST = 3, RELEASE_THRESHOLD = 4, RESERVED = 5, RESERVED_HIGH = 6, USED = 7,
      USED_HIGH = 8 };

API CUresult cuMemPoolSetAttribute(Device *pool, int attribute, void *value) {
    MAY_FAIL;
    Lock lock(machine());
    if (attribute >= REUSE_FIRST && attribute <= REUSE_LAST) return SUCCESS;
    if (attribute == RELEASE_THRESHOLD) return pool->release_threshold = *(uint64_t *)value, SUCCESS;
    if (attribute == RESERVED_HIGH || attribute == USED_HIGH) return pool->most_used = pool->used, SUCCESS;
    return FAIL(INVALID_VALUE, "cuMemPoolSetAttribute of attribute %d", attribute);
}

API CUresult cuMemPoolGetAttribute(Device *pool, int attribute, void *value) {
    MAY_FAIL;
    Lock lock(machine());
    if (attribute == RELEASE_THRESHOLD) return *(uint64_t *)value = pool->release_threshold, SUCCESS;
    if (attribute == RESERVED || attribute == USED) return *(uint64_t *)value = pool->used, SUCCESS;
    if (attribute == RESERVED_HIGH || attribute == USED_HIGH)
        return *(uint64_t *)value = pool->most_used, SUCCESS;
    return FAIL(INVALID_VALUE, "cuMemPoolGetAttribute of attribute %d", attribute);
}

API CUresult cuMemPoolTrimTo(Device *, size_t) {
    MAY_FAIL;
    return SUCCESS;
}

/// As in the API: a type and an ordinal, and 3 for reading and writing.
struct AccessDescription {
    int type, ordinal, flags;
};

API CUresult cuMemPoolSetAccess(Device *pool, const AccessDescription *descriptions, size_t count) {
    MAY_FAIL;
    Lock lock(machine());
    for (size_t i = 0; i < count; i++) {
        auto [type, ordinal, flags] = descriptions[i];
        if (type != 1 || ordinal < 0 || ordinal >= (int)devices().size() || (flags != 0 && flags != 3))
            return FAIL(INVALID_VALUE, "cuMemPoolSetAccess: type %d, device %d, flags %d", type, ordinal,
                        flags);
        auto &readers = pool->readers;
        readers.erase(std::remove(readers.begin(), readers.end(), devices()[ordinal]), readers.end());
        if (flags) readers.push_back(devices()[ordinal]);
    }
    return SUCCESS;
}

// For the emulated cuBLASLt and NCCL: whether `bytes` at `address` lie inside one live allocation.
API int pw_inside(const void *start, size_t bytes) {
    Lock lock(machine());
    return inside((uintptr_t)start, bytes);
}
