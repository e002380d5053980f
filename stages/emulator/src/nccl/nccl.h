// The emulated NCCL. Ranks are processes or threads of one machine. A socket links each pair of ranks.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#define API extern "C" __attribute__((visibility("default")))

enum Result {
    SUCCESS = 0,
    UNHANDLED_CUDA = 1,
    SYSTEM = 2,
    INTERNAL = 3,
    INVALID_ARGUMENT = 4,
    INVALID_USAGE = 5,
    REMOTE = 6,
    IN_PROGRESS = 7,
};

struct UniqueId {
    char name[128];
};

struct Stream;

/// The type of a frame on a link. A rank that reaches a transfer announces it. The data goes once both ranks
/// have reached it.
enum class Frame : uint32_t { SendReached, RecvReached, Data };

struct Header {
    Frame frame;
    /// With data: the process that sends, and the moment of its stream, which means something there only.
    uint32_t process;
    uint64_t index, bytes;
    void *moment;
};

/// What a peer has sent, and its moment if it is in this process.
struct Data {
    std::vector<char> bytes;
    void *moment;
};

/// The link to one peer. Sends and receives are counted: the n-th send of one rank matches the n-th receive
/// of the other.
struct Link {
    int socket = -1;
    uint64_t sends = 0, recvs = 0;
    /// How far the peer is: the number of receives it has reached (for our sends), and of sends (for our
    /// receives).
    uint64_t recvs_reached = 0, sends_reached = 0;
    std::map<uint64_t, uint64_t> recv_bytes;
    std::map<uint64_t, Data> data;
    /// The places of our own unfinished transfers: sends (true) and receives, by number.
    std::map<std::pair<bool, uint64_t>, std::pair<Stream *, uint64_t>> places;
};

/// One send or receive.
struct Transfer {
    bool is_send;
    int peer;
    void *at;
    size_t bytes;
    void *stream;
    uint64_t index = 0;
    bool announced = false, done = false;
};

/// A communicator, as one rank sees it.
struct Comm {
    std::string name;
    int rank, ranks, device;
    bool blocking;
    /// How many multiprocessors a transfer takes while it waits or runs.
    int most_blocks;
    std::mutex mutex;
    std::condition_variable changed;
    Result state = IN_PROGRESS;
    std::string error;
    std::vector<Link> links;
    int wake[2] = {-1, -1};
    std::thread thread;
    std::atomic<bool> aborted{false};
    /// Transfers that were called for but are not yet on their streams. A communicator that does not block
    /// queues them later.
    std::vector<Transfer> pending;
    int polls = 0;
    bool finalizing = false;
    /// The number of unfinished transfers on streams, and the place of the last one on each stream.
    std::atomic<int> outstanding{0};
    std::map<Stream *, uint64_t> ends;

    ~Comm();
    /// Stores the first error, and prints it.
    Result fail(Result result, const std::string &message);
};

using Shared = std::shared_ptr<Comm>;

/// Links the rank with all others. Then reads what they send until the communicator is aborted. Runs on its
/// own thread.
void serve(Shared comm);
/// Ends `serve` and the links.
void hang_up(Comm &comm);
bool send_all(int socket, const void *bytes, size_t count);

/// Puts transfers on their streams. Transfers on the same stream form one piece of work.
Result queue(const Shared &comm, std::vector<Transfer> transfers);
/// Something has come from a peer, so streams that peers wait for are tried again.
void wake_mover();
/// A peer waits for the work at this place of a stream.
void demand(Stream *stream, uint64_t place);
