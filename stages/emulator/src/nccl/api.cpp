// NCCL's functions. A communicator that does not block reports "in progress" where the real one does. Its
// transfers are on their streams only after the caller has polled its state to the end.
#include "nccl.h"
#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <unistd.h>
#include <utility>

extern "C" int pw_inside(const void *address, size_t bytes);
extern "C" int pw_advance(Stream *stream, uint64_t place);
extern "C" int pw_current_device();
extern "C" int pw_device_of(void *stream);
extern "C" int pw_fails(const char *call);

/// The part of NCCL 2.28's `ncclConfig_t` that is read here.
struct Config {
    size_t size;
    unsigned magic, version;
    int blocking, cluster, least_blocks, most_blocks;
};
/// How many blocks a transfer has if nobody says.
static const int BLOCKS = 32;
static const size_t CONFIG_BYTES = 80;
static const unsigned MAGIC = 0xcafebeef;

/// A handle. Its user frees it while work may still hold the communicator.
struct Handle {
    Shared comm;
};

// The most thread blocks that any communicator lets a transfer take, and how many threads were started for
// transfers. A communicator that does not block starts one for each call outside of a group, and for each
// group.
static std::atomic<int> most_blocks{0};
static std::atomic<uint64_t> threads_started{0};

API uint64_t pw_most_blocks() { return (uint64_t)most_blocks; }
API uint64_t pw_threads_started() { return threads_started; }

static thread_local int group_depth = 0;
static thread_local std::vector<std::pair<Shared, Transfer>> group_transfers;
static thread_local std::vector<Shared> group_inits;
/// The error of a transfer in the group. The real library queues nothing of such a group, and returns the
/// error at its end.
static thread_local Result group_error = SUCCESS;

// How many handles there are.
static std::atomic<int> handles;

static std::mutex last_error_mutex;
static std::string &last_error = *new std::string;

static Result say(Result result, const std::string &message) {
    fprintf(stderr, "emulated NCCL: %s\n", message.c_str());
    std::lock_guard lock(last_error_mutex);
    last_error = message;
    return result;
}

/// For the first line of a function of the API: it fails here if a test wants that.
#define MAY_FAIL \
    if (pw_fails(__func__)) \
    return say(INTERNAL, std::string("the emulator was told to let ") + __func__ + " fail")

Result Comm::fail(Result result, const std::string &message) {
    say(result, message);
    std::lock_guard lock(mutex);
    if (state == SUCCESS || state == IN_PROGRESS) state = result, error = message;
    changed.notify_all();
    return result;
}

API Result ncclGetVersion(int *version) { return *version = 22809, SUCCESS; }

API Result ncclGetUniqueId(UniqueId *id) {
    MAY_FAIL;
    std::random_device random;
    *id = {};
    snprintf(id->name, sizeof id->name, "pipewright-nccl-%d-%08x%08x", (int)getpid(), random(), random());
    return SUCCESS;
}

static Result wait_until_ready(Comm &comm) {
    std::unique_lock lock(comm.mutex);
    comm.changed.wait(lock, [&] { return comm.state != IN_PROGRESS; });
    return comm.state;
}

API Result ncclCommInitRankConfig(Handle **handle, int ranks, UniqueId id, int rank, const Config *config) {
    MAY_FAIL;
    if (ranks < 1 || rank < 0 || rank >= ranks || id.name[0] == 0)
        return say(INVALID_ARGUMENT,
                   "rank " + std::to_string(rank) + " of " + std::to_string(ranks) + ", or an empty id");
    if (config && (config->magic != MAGIC || config->size > CONFIG_BYTES))
        return say(INVALID_ARGUMENT, "the configuration is not of NCCL 2.28");
    if (config && config->blocking != INT_MIN && config->blocking != 0 && config->blocking != 1)
        return say(INVALID_ARGUMENT, "blocking is neither 0 nor 1");
    auto comm = std::make_shared<Comm>();
    comm->name = std::string(id.name, strnlen(id.name, sizeof id.name - 1));
    comm->rank = rank, comm->ranks = ranks;
    comm->blocking = !config || config->blocking != 0;
    comm->most_blocks = config && config->most_blocks != INT_MIN ? config->most_blocks : BLOCKS;
    if (comm->most_blocks < 1 || comm->most_blocks > 64) return say(INVALID_ARGUMENT, "maxCTAs: 1 to 64");
    most_blocks = std::max<int>(most_blocks, comm->most_blocks);
    comm->device = pw_current_device();
    if (comm->device < 0) return say(UNHANDLED_CUDA, "no context is current");
    comm->links.resize((size_t)ranks);
    if (pipe(comm->wake) != 0) return say(SYSTEM, "no pipe");
    comm->thread = std::thread(serve, comm);
    *handle = new Handle{comm};
    handles++;
    if (!comm->blocking) return IN_PROGRESS;
    if (group_depth > 0) return group_inits.push_back(comm), SUCCESS;
    return wait_until_ready(*comm);
}

API Result ncclCommInitRank(Handle **handle, int ranks, UniqueId id, int rank) {
    return ncclCommInitRankConfig(handle, ranks, id, rank, nullptr);
}

// The first poll always gives "in progress", so that callers cannot rely on luck.
static bool still_pending(const Shared &comm) {
    if (comm->pending.empty()) return false;
    if (comm->polls++ == 0) return true;
    std::vector<Transfer> transfers;
    transfers.swap(comm->pending);
    queue(comm, std::move(transfers));
    return false;
}

static bool still_finalizing(Comm &comm) {
    if (!comm.finalizing || comm.outstanding == 0) return false;
    std::map<Stream *, uint64_t> ends;
    {
        std::lock_guard lock(comm.mutex);
        ends = comm.ends;
    }
    for (auto [stream, place] : ends) pw_advance(stream, place);
    return comm.outstanding > 0;
}

API Result ncclCommGetAsyncError(Handle *handle, Result *result) {
    MAY_FAIL;
    const Shared &comm = handle->comm;
    {
        std::lock_guard lock(comm->mutex);
        *result = comm->state;
    }
    if (*result == SUCCESS && (still_pending(comm) || still_finalizing(*comm))) *result = IN_PROGRESS;
    return SUCCESS;
}

// The real library's answer to a call on a communicator that is still busy.
static Result ready(Comm &comm) {
    std::lock_guard lock(comm.mutex);
    if (comm.state == SUCCESS && comm.pending.empty()) return SUCCESS;
    say(INVALID_ARGUMENT, "Attempt to use communicator before the previous operation returned ncclSuccess");
    return comm.state == SUCCESS || comm.state == IN_PROGRESS ? INVALID_ARGUMENT : comm.state;
}

static Result launch(const Shared &comm, std::vector<Transfer> transfers) {
    if (comm->blocking) return queue(comm, std::move(transfers));
    threads_started++;
    comm->pending = std::move(transfers);
    comm->polls = 0;
    return IN_PROGRESS;
}

API Result ncclGroupStart() { return group_depth++, SUCCESS; }

API Result ncclGroupEnd() {
    if (pw_fails(__func__)) group_error = say(INTERNAL, "the emulator was told to let ncclGroupEnd fail");
    if (group_error != SUCCESS) {
        group_depth = 0, group_transfers.clear(), group_inits.clear();
        return std::exchange(group_error, SUCCESS);
    }
    if (group_depth == 0) return say(INVALID_USAGE, "ncclGroupEnd: not in a group call");
    if (--group_depth > 0) return SUCCESS;
    Result result = SUCCESS;
    for (Shared &comm : group_inits)
        if (Result ready = wait_until_ready(*comm)) result = ready;
    group_inits.clear();
    // The transfers of a communicator form one kernel, in the order of their first calls.
    std::vector<std::pair<Shared, Transfer>> transfers;
    transfers.swap(group_transfers);
    while (!transfers.empty()) {
        Shared comm = transfers.front().first;
        std::vector<Transfer> mine;
        std::vector<std::pair<Shared, Transfer>> others;
        for (auto &[owner, transfer] : transfers)
            if (owner == comm)
                mine.push_back(transfer);
            else
                others.push_back({owner, transfer});
        transfers.swap(others);
        Result launched = launch(comm, mine);
        if (result == SUCCESS || result == IN_PROGRESS) result = launched == SUCCESS ? result : launched;
    }
    return result;
}

static size_t bytes_of(int type) {
    static const size_t BYTES[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
    return type >= 0 && type < 12 ? BYTES[type] : 0;
}

/// Writes down what is sent, for tests that check which way data takes.
static void note(const Comm &comm, int peer, size_t bytes) {
    const char *path = getenv("PIPEWRIGHT_EMULATOR_SENT");
    FILE *file = path ? fopen(path, "a") : nullptr;
    if (!file) return;
    fprintf(file, "%d %d %zu\n", comm.rank, peer, bytes);
    fclose(file);
}

static Result check_and_queue(bool is_send, void *at, size_t count, int type, int peer, Handle *handle,
                              void *stream) {
    if (!handle) return say(INVALID_ARGUMENT, "no communicator");
    const Shared &comm = handle->comm;
    if (Result result = ready(*comm)) return result;
    size_t bytes = count * bytes_of(type);
    if (peer < 0 || peer >= comm->ranks || peer == comm->rank)
        return say(INVALID_ARGUMENT,
                   "peer " + std::to_string(peer) + " of " + std::to_string(comm->ranks) +
                   " ranks (not oneself, here)");
    if (pw_device_of(stream) != comm->device)
        return say(INVALID_ARGUMENT, "a stream that is not of device " + std::to_string(comm->device));
    if (bytes == 0 || !pw_inside(at, bytes))
        return say(INVALID_ARGUMENT,
                   std::to_string(bytes) + " bytes that are not inside one live allocation");
    if (is_send) note(*comm, peer, bytes);
    Transfer one = {is_send, peer, at, bytes, stream};
    if (group_depth > 0) return group_transfers.push_back({comm, one}), SUCCESS;
    return launch(comm, {one});
}

static Result transfer(const char *call, bool is_send, void *at, size_t count, int type, int peer,
                       Handle *handle, void *stream) {
    Result result = pw_fails(call)
        ? say(INTERNAL, std::string("the emulator was told to let ") + call + " fail")
        : check_and_queue(is_send, at, count, type, peer, handle, stream);
    if (group_depth > 0 && result != SUCCESS && result != IN_PROGRESS) group_error = result;
    return result;
}

API Result ncclSend(const void *from, size_t count, int type, int peer, Handle *handle, void *stream) {
    return transfer(__func__, true, (void *)from, count, type, peer, handle, stream);
}

API Result ncclRecv(void *to, size_t count, int type, int peer, Handle *handle, void *stream) {
    return transfer(__func__, false, to, count, type, peer, handle, stream);
}

API Result ncclCommFinalize(Handle *handle) {
    Comm &comm = *handle->comm;
    if (Result result = ready(comm)) return result;
    comm.finalizing = true;
    if (!comm.blocking) return IN_PROGRESS;
    while (still_finalizing(comm)) usleep(100);
    return SUCCESS;
}

// Adds a line to the file of aborts, if there is one. With `never` in its place no abort ends.
static bool note_abort(const char *line) {
    const char *path = getenv("PIPEWRIGHT_EMULATOR_ABORTS");
    while (path && !strcmp(path, "never")) pause();
    FILE *file = path ? fopen(path, "a") : nullptr;
    if (!file) return false;
    fprintf(file, "%s\n", line);
    return fclose(file), true;
}

API Result ncclCommAbort(Handle *handle) {
    if (note_abort("begun")) usleep(300000);
    handle->comm->pending.clear();
    hang_up(*handle->comm);
    delete handle;
    handles--;
    note_abort("done");
    return SUCCESS;
}

API Result ncclCommDestroy(Handle *handle) {
    if (handle->comm->outstanding > 0 || !handle->comm->pending.empty())
        say(INVALID_USAGE,
            "a communicator is destroyed with transfers under way: the real one would wait for them");
    return ncclCommAbort(handle);
}

API Result ncclCommCount(Handle *handle, int *count) { return *count = handle->comm->ranks, SUCCESS; }

API Result ncclCommUserRank(Handle *handle, int *rank) { return *rank = handle->comm->rank, SUCCESS; }

API Result ncclCommCuDevice(Handle *handle, int *device) { return *device = handle->comm->device, SUCCESS; }

API const char *ncclGetErrorString(Result result) {
    switch (result) {
    case SUCCESS: return "no error";
    case UNHANDLED_CUDA: return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case SYSTEM: return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case INTERNAL: return "internal error - please report this issue to the NCCL developers";
    case INVALID_ARGUMENT: return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case INVALID_USAGE: return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case REMOTE: return "remote process exited or there was a network error";
    case IN_PROGRESS: return "NCCL operation in progress";
    default: return "unknown result code";
    }
}

API const char *ncclGetLastError(Handle *) {
    // The calling thread's own copy, because another thread may write the next error.
    static thread_local std::string copy;
    std::lock_guard lock(last_error_mutex);
    copy = last_error;
    return copy.c_str();
}

// For tests: how many communicators this process has.
API int pw_communicators() { return handles; }
