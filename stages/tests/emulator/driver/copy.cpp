// Copies and fills. Their ranges must lie inside live allocations. As in the real driver, a copy from
// ordinary host memory reads it during the call, and a copy to it waits. Page-locked memory is read and
// written when the stream reaches the copy.
#include "driver.h"
#include <cstring>

static void *address(CUdeviceptr pointer) { return (void *)(uintptr_t)pointer; }

static CUresult check(const char *call, Stream *stream, CUdeviceptr pointer, size_t bytes) {
    if (CUresult result = usable()) return result;
    if (!stream) return FAIL(INVALID_HANDLE, "%s on no stream", call);
    if (!inside(pointer, bytes))
        return FAIL(INVALID_VALUE, "%s of %zu bytes outside every live allocation", call, bytes);
    return SUCCESS;
}

static CUresult move(const char *call, Stream *stream, CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    if (CUresult result = check(call, stream, to, bytes)) return result;
    if (CUresult result = check(call, stream, from, bytes)) return result;
    enqueue(stream, [=] { return memmove(address(to), address(from), bytes), Progress::Done; });
    return SUCCESS;
}

API CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, void *handle) {
    Lock lock(machine());
    Stream *stream = stream_of(handle);
    if (CUresult result = check("cuMemcpyHtoDAsync", stream, to, bytes)) return result;
    if (pinned(from, bytes)) {
        enqueue(stream, [=] { return memcpy(address(to), from, bytes), Progress::Done; });
        return SUCCESS;
    }
    auto taken = std::make_shared<std::vector<char>>((const char *)from, (const char *)from + bytes);
    enqueue(stream, [=] { return memcpy(address(to), taken->data(), bytes), Progress::Done; });
    return SUCCESS;
}

API CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, void *handle) {
    Stream *stream;
    uint64_t place;
    {
        Lock lock(machine());
        stream = stream_of(handle);
        if (CUresult result = check("cuMemcpyDtoHAsync", stream, from, bytes)) return result;
        place = enqueue(stream, [=] { return memcpy(to, address(from), bytes), Progress::Done; });
        if (pinned(to, bytes)) return SUCCESS;
    }
    return wait(stream, place);
}

// Whether the memory is the device's own, or mapped on it.
static bool reaches(Device *device, CUdeviceptr pointer) {
    Device *owner = device_of(pointer);
    auto &mapped = owner->mapped_on;
    return owner == device || std::find(mapped.begin(), mapped.end(), device->ordinal) != mapped.end();
}

API CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, void *handle) {
    Lock lock(machine());
    Stream *stream = stream_of(handle);
    if (CUresult result = move("cuMemcpyDtoDAsync", stream, to, from, bytes)) return result;
    if (reaches(stream->device, to) && reaches(stream->device, from)) return SUCCESS;
    return FAIL(INVALID_VALUE, "cuMemcpyDtoDAsync of memory that is not mapped on the stream's device");
}

// How many copies were left to the driver, which may take them through the host.
static uint64_t left_to_driver = 0;

// For tests: how many copies were left to the driver.
API uint64_t pw_left_to_driver() {
    Lock lock(machine());
    return left_to_driver;
}

API CUresult cuMemcpyPeerAsync(CUdeviceptr to, Device *, CUdeviceptr from, Device *, size_t bytes,
                               void *handle) {
    Lock lock(machine());
    left_to_driver++;
    return move("cuMemcpyPeerAsync", stream_of(handle), to, from, bytes);
}

// The blocking forms use the legacy stream, and wait for all streams that synchronize with it.
static CUresult finish() {
    std::vector<Stream *> streams;
    {
        Lock lock(machine());
        for (Stream *stream : current()->streams)
            if (stream->waits_for_legacy) streams.push_back(stream);
    }
    for (Stream *stream : streams)
        if (CUresult result = wait(stream, stream->queued)) return result;
    return SUCCESS;
}

template <class Call> static CUresult blocking(Call call) {
    {
        Lock lock(machine());
        if (CUresult result = usable()) return result;
    }
    if (CUresult result = finish()) return result;
    if (CUresult result = call()) return result;
    return wait(current()->legacy, current()->legacy->queued);
}

API CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes) {
    return blocking([=] { return cuMemcpyHtoDAsync_v2(to, from, bytes, nullptr); });
}

API CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes) {
    return blocking([=] { return cuMemcpyDtoHAsync_v2(to, from, bytes, nullptr); });
}

API CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    return blocking([=] { return cuMemcpyDtoDAsync_v2(to, from, bytes, nullptr); });
}

template <class T>
static CUresult fill(const char *call, CUdeviceptr to, T value, size_t count, void *handle) {
    Lock lock(machine());
    Stream *stream = stream_of(handle);
    if (CUresult result = check(call, stream, to, count * sizeof(T))) return result;
    if (to % sizeof(T)) return FAIL(INVALID_VALUE, "%s of a pointer that is not aligned", call);
    enqueue(stream, [=] { return std::fill_n((T *)address(to), count, value), Progress::Done; });
    return SUCCESS;
}

API CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, void *stream) {
    return fill("cuMemsetD8Async", to, value, count, stream);
}

API CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t count, void *stream) {
    return fill("cuMemsetD16Async", to, value, count, stream);
}

API CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, void *stream) {
    return fill("cuMemsetD32Async", to, value, count, stream);
}

API CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t count) {
    return blocking([=] { return cuMemsetD8Async(to, value, count, nullptr); });
}

API CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned value, size_t count) {
    return blocking([=] { return cuMemsetD32Async(to, value, count, nullptr); });
}
