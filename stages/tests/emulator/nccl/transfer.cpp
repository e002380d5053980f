// Transfers on streams. A send ends only when the peer's stream has reached the matching receive, as NCCL
// allows. So if ranks wait for each other in a circle, they hang here too.
//
// Streams are lazy, and a host that waits for its own stream cannot run a peer's stream. So a rank that
// reaches a transfer announces it, and the peer's mover then runs the peer's stream up to that transfer.
#include "nccl.h"
#include <algorithm>
#include <cstring>

extern "C" uint64_t pw_enqueue(void *handle, int (*work)(void *), void *argument, Stream **stream);
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
};

static void announce(Comm &comm, Transfer &transfer) {
    Header header =
        {transfer.is_send ? Frame::SendReached : Frame::RecvReached, 0, transfer.index, transfer.bytes};
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
    Header header = {Frame::Data, 0, transfer.index, transfer.bytes};
    if (!send_all(link.socket, &header, sizeof header) || !send_all(link.socket, transfer.at, transfer.bytes))
        return false;
    std::lock_guard lock(comm.mutex);
    link.recv_bytes.erase(transfer.index);
    return true;
}

static bool try_recv(Comm &comm, Transfer &transfer) {
    Link &link = comm.links[(size_t)transfer.peer];
    std::vector<char> data;
    {
        std::lock_guard lock(comm.mutex);
        auto found = link.data.find(transfer.index);
        if (found == link.data.end()) return false;
        data = std::move(found->second);
        link.data.erase(found);
    }
    if (unequal(comm, transfer, data.size())) return false;
    memcpy(transfer.at, data.data(), data.size());
    return true;
}

static int work(void *argument) {
    Batch *batch = (Batch *)argument;
    Comm &comm = *batch->comm;
    bool all = true;
    for (Transfer &transfer : batch->transfers) {
        if (transfer.done || comm.aborted) continue;
        if (!transfer.announced) announce(comm, transfer);
        transfer.done = transfer.is_send ? try_send(comm, transfer) : try_recv(comm, transfer);
        all &= transfer.done;
    }
    if (!all) return 0;
    for (Transfer &transfer : batch->transfers) {
        std::lock_guard lock(comm.mutex);
        comm.links[(size_t)transfer.peer].places.erase({transfer.is_send, transfer.index});
    }
    comm.outstanding--;
    delete batch;
    return 1;
}

Result queue(const Shared &comm, std::vector<Transfer> transfers) {
    std::map<void *, std::vector<Transfer>> streams;
    for (Transfer &transfer : transfers) {
        Link &link = comm->links[(size_t)transfer.peer];
        transfer.index = transfer.is_send ? link.sends++ : link.recvs++;
        streams[transfer.stream].push_back(transfer);
    }
    for (auto &[handle, together] : streams) {
        comm->outstanding++;
        Stream *stream;
        uint64_t place = pw_enqueue(handle, work, new Batch{comm, together}, &stream);
        if (place == 0) return comm->fail(UNHANDLED_CUDA, "a transfer on no stream");
        std::lock_guard lock(comm->mutex);
        comm->ends[stream] = place;
        for (const Transfer &transfer : together) {
            Link &link = comm->links[(size_t)transfer.peer];
            link.places[{transfer.is_send, transfer.index}] = {stream, place};
            if (transfer.index < (transfer.is_send ? link.recvs_reached : link.sends_reached))
                demand(stream, place);
        }
    }
    return SUCCESS;
}
