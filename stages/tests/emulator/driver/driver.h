// Internal types of the emulated driver: devices, lazy streams, events, memory. The handles of the CUDA API
// point to them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#define API extern "C" __attribute__((visibility("default")))

using CUresult = int;
using CUdeviceptr = unsigned long long;
enum : CUresult {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_IMAGE = 200,
    INVALID_CONTEXT = 201,
    PEER_ACCESS_UNSUPPORTED = 217,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    NOT_READY = 600,
    ILLEGAL_ADDRESS = 700,
    PEER_ACCESS_ALREADY_ENABLED = 704,
    LAUNCH_FAILED = 719,
    NOT_SUPPORTED = 801,
};

/// Prints on standard error what is wrong, and returns `result`.
#define FAIL(result, ...) (fprintf(stderr, "emulated CUDA: " __VA_ARGS__), fputc('\n', stderr), (result))

struct Stream;

/// A device, which is also its own primary context.
struct Device {
    int ordinal = 0;
    int retained = 0;
    size_t memory = 0, used = 0, most_used = 0;
    uint64_t release_threshold = 0;
    /// The first failure of queued work. Every later call returns it, as with a broken context.
    CUresult error = SUCCESS;
    Stream *legacy = nullptr;
    std::vector<Stream *> streams;
    std::vector<Device *> peers;
    /// Other devices on which its pool is mapped.
    std::vector<int> mapped_on;
};

enum class Progress { Done, Blocked };
using Work = std::function<Progress()>;

/// Work in order. It runs only when somebody waits for it, and only as far as needed.
struct Stream {
    Device *device = nullptr;
    bool waits_for_legacy = false, destroyed = false;
    std::deque<Work> work = {};
    /// How many pieces of work have been queued, and how many are done.
    uint64_t queued = 0, done = 0;
};

/// One `cuEventRecord`: a place in a stream, and the time when the stream passed it.
struct Record {
    Stream *stream = nullptr;
    uint64_t place = 0;
    double seconds = -1;
};

struct Event {
    bool timed = true;
    std::shared_ptr<Record> record;
};

/// The only lock of the emulated machine. Recursive, because running a stream may run another.
std::recursive_mutex &machine();
using Lock = std::lock_guard<std::recursive_mutex>;

bool initialized();
std::vector<Device *> &devices();
Device *current();
/// SUCCESS if a context is current and not broken.
CUresult usable();
/// Stores the first failure of a device's work.
void broken(Device *device, CUresult error);

/// The stream of a handle, or null if there is none. Handle 0 is the legacy stream of the current device.
Stream *stream_of(void *handle);
uint64_t enqueue(Stream *stream, Work work);
/// Runs a stream up to `place`, or until its work is blocked.
Progress run(Stream *stream, uint64_t place);
/// Waits until a stream has passed `place`. The caller must not hold the lock.
CUresult wait(Stream *stream, uint64_t place);
/// Waits for all work of a device.
CUresult wait_all(Device *device);

/// Whether `bytes` at `address` lie inside one live allocation of a device.
bool inside(CUdeviceptr address, size_t bytes);
/// The device of an address inside a live allocation.
Device *device_of(CUdeviceptr address);
/// Whether `bytes` at `address` lie in page-locked memory.
bool pinned(const void *address, size_t bytes);

struct PwModule;
struct PwKernel;
struct PwDim;
/// Runs a grid, block by block. False if threads of a block wait for each other for ever.
bool run_grid(PwModule *module, const PwKernel *kernel, void *arguments, PwDim grid, PwDim block,
              unsigned shared);
