// Internal types of the emulated driver: devices, lazy streams, events, memory. The handles of the CUDA API
// point to them.
#pragma once
#include "clock.h"
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
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
    UNKNOWN = 999,
};

/// Prints on standard error what is wrong, and returns `result`.
#define FAIL(result, ...) (fprintf(stderr, "emulated CUDA: " __VA_ARGS__), fputc('\n', stderr), (result))

/// For the first line of a function of the API: it fails here if a test wants that (failing.cpp).
#define MAY_FAIL \
    if (pw_fails(__func__)) return (CUresult)pw_failure()
API int pw_fails(const char *call);
API int pw_failure();
const char *failed_call();
/// The first complaint that no test has taken, or null.
const char *last_complaint();

struct Stream;

/// A device, which is also its own primary context.
struct Device {
    int ordinal = 0;
    int retained = 0, streams_made = 0;
    /// The multiprocessors that waiting transfers hold.
    int held = 0;
    size_t memory = 0, used = 0, most_used = 0;
    uint64_t release_threshold = 0;
    /// The first failure of queued work. Every later call returns it, as with a broken context.
    CUresult error = SUCCESS;
    Stream *legacy = nullptr;
    std::vector<Stream *> streams;
    /// What is done of streams that are no more.
    Known finished = nothing();
    /// The devices whose contexts it may access, and those that may access its pool.
    std::vector<Device *> peers, readers;
};

enum class Progress { Done, Blocked };
using Work = std::function<Progress()>;

/// A piece of work: what it is, for messages, and what the thread that queued it knew to be done.
struct Task {
    const char *name;
    Work work;
    Known host;
};

/// Work in order. It runs only when somebody waits for it, and only as far as needed (order.cpp has other
/// ways).
struct Stream {
    Device *device = nullptr;
    bool waits_for_legacy = false, destroyed = false;
    int priority = 0;
    std::deque<Task> work = {};
    /// How many pieces of work have been queued, and how many are done.
    uint64_t queued = 0, done = 0;
    /// Its number among all streams, and what is done before its next work.
    size_t lane = 0;
    Known known = nothing(), host = nullptr;
};

Stream *new_stream(Device *device, bool waits_for_legacy);
/// The name of a stream in messages, by its lane.
std::string lane_name(size_t lane);

/// The piece of work that runs, on its stream.
struct Running {
    Stream *stream = nullptr;
    uint64_t place = 0;
    const char *name = nullptr;
};
const Running &running();

/// One `cuEventRecord`: a place in a stream, and what the stream knew and the time when it passed it.
struct Record {
    Stream *stream = nullptr;
    uint64_t place = 0;
    Known known = nullptr;
    double seconds = -1;
};

struct Event {
    Device *device;
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

size_t events_alive();
size_t modules_alive();
/// The stream of a handle, or null if there is none. Handle 0 is the legacy stream of the current device.
Stream *stream_of(void *handle);
uint64_t enqueue(Stream *stream, const char *name, Work work);
/// Runs a stream up to `place`, or until its work is blocked.
Progress run(Stream *stream, uint64_t place);
/// Runs some of what is queued, as PIPEWRIGHT_EMULATOR_STREAMS says, now that a stream has more work.
void stir(Stream *stream);
/// Waits until the launches of a stream are not too many. The caller must not hold the lock.
CUresult wait_for_room(Stream *stream);
/// Waits until a stream has passed `place`, which may be the place of a record. The caller must not hold the
/// lock.
CUresult wait(Stream *stream, uint64_t place, const Record *record = nullptr);
/// Waits for all work of a device.
CUresult wait_all(Device *device);

/// Whether `bytes` at `address` lie inside one live allocation of a device.
bool inside(CUdeviceptr address, size_t bytes);
/// Whether `bytes` at `address` lie in page-locked memory.
bool pinned(const void *address, size_t bytes);
/// Which work may use memory when: see accesses.cpp.
#include "accesses.h"

struct PwModule;
struct PwKernel;
struct PwDim;
/// Runs a grid, block by block. False if threads of a block wait for each other for ever.
bool run_grid(PwModule *module, const PwKernel *kernel, void *arguments, PwDim grid, PwDim block,
              unsigned shared);
