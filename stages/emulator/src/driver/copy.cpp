// Copies and fills. Their ranges must lie inside live allocations. As in the real driver, a copy from
// ordinary host memory reads it during the call, and a copy to it waits. Page-locked memory is read and
// written when the stream reaches the copy.
#include "driver.h"
#include <cstring>
#include <string_view>

static void *address(CUdeviceptr pointer) { return (void *)(uintptr_t)pointer; }

// Of page-locked memory, which the host must leave as it is while a copy is queued.
static uint64_t hash_of(const void *from, size_t bytes) {
    return std::hash<std::string_view>()({(const char *)from, bytes});
}

static CUresult check(const char *call, Stream *stream, CUdeviceptr pointer, size_t bytes) {
    if (CUresult result = usable()) return result;
    if (!stream) return FAIL(INVALID_HANDLE, "%s on no stream", call);
    if (!inside(pointer, bytes))
        return FAIL(INVALID_VALUE, "%s of %zu bytes outside every live allocation", call, bytes);
    return SUCCESS;
}

static CUresult move(const char *call, Stream *stream, CUdeviceptr to, CUdeviceptr from, size_t bytes,
                     Reach reach) {
    if (CUresult result = check(call, stream, to, bytes)) return result;
    if (CUresult result = check(call, stream, from, bytes)) return result;
    enqueue(stream, call, [=] {
        touches(from, bytes, false, reach);
        touches(to, bytes, true, reach);
        return memmove(address(to), address(from), bytes), Progress::Done;
    });
    return SUCCESS;
}

API CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, void *handle) {
    MAY_FAIL;
    Lock lock(machine());
    Stream *stream = stream_of(handle);
    if (CUresult result = check("cuMemcpyHtoDAsync", stream, to, bytes)) return result;
    if (pinned(from, bytes)) {
        // What a device is still to write there is not the host's.
        bool host_wrote = allocation_of((uintptr_t)from)->writers == 0;
        uint64_t before = host_wrote ? hash_of(from, bytes) : 0;
        enqueue(stream, "cuMemcpyHtoDAsync", [=] {
            if (host_wrote && hash_of(from, bytes) != before)
                complain(stream->device, ILLEGAL_ADDRESS,
                         text("race on page-locked memory: the host changed %zu bytes that a copy on %s was "
                              "still to read",
                              bytes, lane_name(stream->lane).c_str()));
            touches((uintptr_t)from, bytes, false);
            touches(to, bytes, true);
            return memcpy(address(to), from, bytes), Progress::Done;
        });
        return SUCCESS;
    }
    auto taken = std::make_shared<std::vector<char>>((const char *)from, (const char *)from + bytes);
    enqueue(stream, "cuMemcpyHtoDAsync", [=] {
        touches(to, bytes, true);
        return memcpy(address(to), taken->data(), bytes), Progress::Done;
    });
    return SUCCESS;
}

API CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, void *handle) {
    MAY_FAIL;
    Stream *stream;
    uint64_t place;
    {
        Lock lock(machine());
        stream = stream_of(handle);
        if (CUresult result = check("cuMemcpyDtoHAsync", stream, from, bytes)) return result;
        bool later = pinned(to, bytes);
        auto written = later ? allocation_of((uintptr_t)to) : nullptr;
        if (written) written->writers++;
        place = enqueue(stream, "cuMemcpyDtoHAsync", [=] {
            touches(from, bytes, false);
            if (written) touches((uintptr_t)to, bytes, true), written->writers--;
            return memcpy(to, address(from), bytes), Progress::Done;
        });
        if (later) return SUCCESS;
    }
    return wait(stream, place);
}

API CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, void *handle) {
    MAY_FAIL;
    Lock lock(machine());
    return move("cuMemcpyDtoDAsync", stream_of(handle), to, from, bytes, Reach::Direct);
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
    MAY_FAIL;
    Lock lock(machine());
    left_to_driver++;
    return move("cuMemcpyPeerAsync", stream_of(handle), to, from, bytes, Reach::Any);
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
    MAY_FAIL;
    return blocking([=] { return cuMemcpyHtoDAsync_v2(to, from, bytes, nullptr); });
}

API CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes) {
    MAY_FAIL;
    return blocking([=] { return cuMemcpyDtoHAsync_v2(to, from, bytes, nullptr); });
}

API CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    MAY_FAIL;
    return blocking([=] { return cuMemcpyDtoDAsync_v2(to, from, bytes, nullptr); });
}

template <class T>
static CUresult fill(const char *call, CUdeviceptr to, T value, size_t count, void *handle) {
    Lock lock(machine());
    Stream *stream = stream_of(handle);
    if (CUresult result = check(call, stream, to, count * sizeof(T))) return result;
    if (to % sizeof(T)) return FAIL(INVALID_VALUE, "%s of a pointer that is not aligned", call);
    enqueue(stream, call, [=] {
        touches(to, count * sizeof(T), true);
        return std::fill_n((T *)address(to), count, value), Progress::Done;
    });
    return SUCCESS;
}

API CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, void *stream) {
    MAY_FAIL;
    return fill("cuMemsetD8Async", to, value, count, stream);
}

API CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t count, void *stream) {
    MAY_FAIL;
    return fill("cuMemsetD16Async", to, value, count, stream);
}

API CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, void *stream) {
    MAY_FAIL;
    return fill("cuMemsetD32Async", to, value, count, stream);
}

API CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t count) {
    MAY_FAIL;
    return blocking([=] { return cuMemsetD8Async(to, value, count, nullptr); });
}

API CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned value, size_t count) {
    MAY_FAIL;
    return blocking([=] { return cuMemsetD32Async(to, value, count, nullptr); });
}
