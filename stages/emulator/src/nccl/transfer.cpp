// Transfers on streams. A send ends only when the peer's stream has reached the matching receive, as NCCL
// allows. So if ranks wait for each other in a circle, they hang here too.
//
// Streams are lazy, and a host that waits for its own stream cannot run a peer's stream. So a rank that
// reaches a transfer announces it, and the peer's mover then runs the peer's stream up to that transfer.
#include "nccl.h"
#include <algorithm>
#include <cstring>
#include <unistd.h>

extern "C" uint64_t pw_enqueue(void *handle, const char *name, int (*work)(void *), void *argument,
                               Stream **stream);
extern "C" void pw_touches(const void *start, size_t bytes, int writes);
extern "C" void *pw_moment();
extern "C" void pw_learn(void *moment);
extern "C" void pw_learn_place(Stream *stream, uint64_t place);
extern "C" void pw_hold(int device, int multiprocessors);
extern "C" int pw_advance(Stream *stream, uint64_t place);

/// Runs the streams that peers wait for. One per process, because a stream may wait for any communicator.
struct Mover {
    std::mutex mutex;
    std::condition_variable woken;
    std::map<Stream *, uint64_t> demanded;
    bool again = false;

    void run() {
        for (;;) {
            std::map<Stream *, uint64_t> places;
            {
                std::unique_lock lock(mutex);
                woken.wait(lock, [&] { return again && !demanded.empty(); });
                again = false;
                places = demanded;
            }
            for (auto [stream, place] : places)
                if (pw_advance(stream, place)) reached(stream, place);
        }
    }

    void reached(Stream *stream, uint64_t place) {
        std::lock_guard lock(mutex);
        auto found = demanded.find(stream);
        if (found != demanded.end() && found->second <= place) demanded.erase(found);
    }
};

static Mover &mover() {
    // Never destroyed, because its thread runs until the process ends.
    static Mover *one = [] {
        auto *made = new Mover;
        std::thread([made] { made->run(); }).detach();
        return made;
    }();
    return *one;
}

void wake_mover() {
    std::lock_guard lock(mover().mutex);
    mover().again = true;
    mover().woken.notify_one();
}

void demand(Stream *stream, uint64_t place) {
    std::lock_guard lock(mover().mutex);
    uint64_t &furthest = mover().demanded[stream];
    furthest = std::max(furthest, place);
    mover().again = true;
    mover().woken.notify_one();
}

/// Transfers that run together: one kernel of the real NCCL.
struct Batch {
    Shared comm;
    std::vector<Transfer> transfers;
    /// If a group has several streams, "it will behave as if the NCCL group operation was posted on every
    /// stream": the first has the batch, and the others a gate, at these places.
    Stream *stream = nullptr;
    uint64_t place = 0;
    std::vector<std::pair<Stream *, uint64_t>> gates;
    bool begun = false, done = false;
};
using SharedBatch = std::shared_ptr<Batch>;

static void announce(Comm &comm, Transfer &transfer) {
    Header header = {transfer.is_send ? Frame::SendReached : Frame::RecvReached, 0, transfer.index,
                     transfer.bytes, nullptr};
    // A peer that has gone gets no announcement, and the transfer never ends.
    send_all(comm.links[(size_t)transfer.peer].socket, &header, sizeof header);
    transfer.announced = true;
}

static bool unequal(Comm &comm, const Transfer &transfer, uint64_t theirs) {
    if (theirs == transfer.bytes) return false;
    comm.fail(INVALID_USAGE,
              "rank " + std::to_string(comm.rank) + (transfer.is_send ? " sends " : " receives ") +
              std::to_string(transfer.bytes) + " bytes, and rank " + std::to_string(transfer.peer) + " has " +
              std::to_string(theirs));
    return true;
}

// The caller holds the machine's lock, so only one send runs at a time. The communicator's lock is not held
// while bytes are sent, because the peer's data may have to be read at the same time.
static bool try_send(Comm &comm, Transfer &transfer) {
    Link &link = comm.links[(size_t)transfer.peer];
    uint64_t theirs;
    {
        std::lock_guard lock(comm.mutex);
        auto found = link.recv_bytes.find(transfer.index);
        if (found == link.recv_bytes.end()) return false;
        theirs = found->second;
    }
    if (unequal(comm, transfer, theirs)) return false;
    pw_touches(transfer.at, transfer.bytes, false);
    Header header = {Frame::Data, (uint32_t)getpid(), transfer.index, transfer.bytes, pw_moment()};
    if (!send_all(link.socket, &header, sizeof header) || !send_all(link.socket, transfer.at, transfer.bytes))
        return false;
    std::lock_guard lock(comm.mutex);
    link.recv_bytes.erase(transfer.index);
    return true;
}

static bool try_recv(Comm &comm, Transfer &transfer) {
    Link &link = comm.links[(size_t)transfer.peer];
    Data data;
    {
        std::lock_guard lock(comm.mutex);
        auto found = link.data.find(transfer.index);
        if (found == link.data.end()) return false;
        data = std::move(found->second);
        link.data.erase(found);
    }
    if (unequal(comm, transfer, data.bytes.size())) return false;
    // What the sender's stream did before is done now.
    if (data.moment) pw_learn(data.moment);
    pw_touches(transfer.at, transfer.bytes, true);
    memcpy(transfer.at, data.bytes.data(), data.bytes.size());
    return true;
}

static bool run_batch(Batch &batch) {
    Comm &comm = *batch.comm;
    for (auto [stream, gate] : batch.gates) {
        if (!pw_advance(stream, gate - 1)) return false;
        pw_learn_place(stream, gate - 1);
    }
    // From here on the real kernel waits for its peers, on multiprocessors that others then lack.
    if (!batch.begun) pw_hold(comm.device, comm.most_blocks);
    batch.begun = true;
    bool all = true;
    for (Transfer &transfer : batch.transfers) {
        if (transfer.done || comm.aborted) continue;
        if (!transfer.announced) announce(comm, transfer);
        transfer.done = transfer.is_send ? try_send(comm, transfer) : try_recv(comm, transfer);
        all &= transfer.done;
    }
    return all;
}

static int work(void *argument) {
    SharedBatch batch = *(SharedBatch *)argument;
    Comm &comm = *batch->comm;
    if (!run_batch(*batch)) return 0;
    pw_hold(comm.device, -comm.most_blocks);
    for (Transfer &transfer : batch->transfers) {
        std::lock_guard lock(comm.mutex);
        comm.links[(size_t)transfer.peer].places.erase({transfer.is_send, transfer.index});
    }
    comm.outstanding--;
    batch->done = true;
    delete (SharedBatch *)argument;
    return 1;
}

static int gate(void *argument) {
    SharedBatch batch = *(SharedBatch *)argument;
    if (!batch->done && !(batch->stream && pw_advance(batch->stream, batch->place))) return 0;
    pw_learn_place(batch->stream, batch->place);
    delete (SharedBatch *)argument;
    return 1;
}

static void remember_places(Comm &comm, const Batch &batch) {
    std::lock_guard lock(comm.mutex);
    comm.ends[batch.stream] = batch.place;
    if (batch.done) return;
    for (const Transfer &transfer : batch.transfers) {
        Link &link = comm.links[(size_t)transfer.peer];
        link.places[{transfer.is_send, transfer.index}] = {batch.stream, batch.place};
        if (transfer.index < (transfer.is_send ? link.recvs_reached : link.sends_reached))
            demand(batch.stream, batch.place);
    }
}

Result queue(const Shared &comm, std::vector<Transfer> transfers) {
    auto batch = std::make_shared<Batch>();
    batch->comm = comm;
    std::vector<void *> handles;
    for (Transfer &transfer : transfers) {
        Link &link = comm->links[(size_t)transfer.peer];
        transfer.index = transfer.is_send ? link.sends++ : link.recvs++;
        if (std::find(handles.begin(), handles.end(), transfer.stream) == handles.end())
            handles.push_back(transfer.stream);
    }
    batch->transfers = std::move(transfers);
    comm->outstanding++;
    const char *name = batch->transfers.size() > 1     ? "a group of ncclSend and ncclRecv"
                       : batch->transfers[0].is_send ? "ncclSend"
                                                     : "ncclRecv";
    for (size_t i = handles.size(); i-- > 1;) {
        Stream *stream;
        uint64_t place = pw_enqueue(handles[i], name, gate, new SharedBatch(batch), &stream);
        if (place == 0) return comm->fail(UNHANDLED_CUDA, "a transfer on no stream");
        batch->gates.push_back({stream, place});
    }
    Stream *stream;
    uint64_t place = pw_enqueue(handles[0], name, work, new SharedBatch(batch), &stream);
    if (place == 0) return comm->fail(UNHANDLED_CUDA, "a transfer on no stream");
    batch->stream = stream, batch->place = place;
    remember_places(*comm, *batch);
    return SUCCESS;
}
