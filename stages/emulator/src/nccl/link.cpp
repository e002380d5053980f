// Links between ranks: abstract Unix sockets, named after the unique id and the rank.
#include "nccl.h"
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/// The first message between two ranks. Two ranks on one host may not use the same GPU, unless NCCL_HOSTID
/// says that they are on different hosts.
struct Hello {
    int32_t rank, ranks, device;
    char host[116];
};

bool send_all(int socket, const void *bytes, size_t count) {
    for (const char *at = (const char *)bytes; count > 0;) {
        ssize_t sent = send(socket, at, count, MSG_NOSIGNAL);
        if (sent <= 0) return false;
        at += sent, count -= (size_t)sent;
    }
    return true;
}

static bool read_all(int socket, void *bytes, size_t count) {
    for (char *at = (char *)bytes; count > 0;) {
        ssize_t got = recv(socket, at, count, 0);
        if (got <= 0) return false;
        at += got, count -= (size_t)got;
    }
    return true;
}

static socklen_t address(const Comm &comm, int rank, sockaddr_un &to) {
    to = {};
    to.sun_family = AF_UNIX;
    std::string name = comm.name + "-" + std::to_string(rank);
    memcpy(to.sun_path + 1, name.data(), name.size());
    return (socklen_t)(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

// Waits for something to read, at most this long. True if the communicator is aborted.
static bool stopped(Comm &comm, int milliseconds, int also = -1) {
    pollfd waits[] = {{comm.wake[0], POLLIN, 0}, {also, POLLIN, 0}};
    poll(waits, 2, milliseconds);
    return waits[0].revents != 0;
}

static bool exchange_hellos(Comm &comm, int socket) {
    Hello mine = {comm.rank, comm.ranks, comm.device, {}}, theirs;
    const char *host = getenv("NCCL_HOSTID");
    snprintf(mine.host, sizeof mine.host, "%s", host ? host : "this machine");
    if (!send_all(socket, &mine, sizeof mine) || stopped(comm, -1, socket) ||
        !read_all(socket, &theirs, sizeof theirs))
        return false;
    if (theirs.ranks != comm.ranks || theirs.rank < 0 || theirs.rank >= comm.ranks ||
        theirs.rank == comm.rank) {
        comm.fail(INVALID_ARGUMENT,
                  "rank " + std::to_string(theirs.rank) + " of " + std::to_string(theirs.ranks) + " ranks");
        return false;
    }
    if (theirs.device == comm.device && strcmp(theirs.host, mine.host) == 0) {
        comm.fail(INVALID_USAGE, "Duplicate GPU detected : rank " + std::to_string(comm.rank) + " and rank " +
                  std::to_string(theirs.rank) + " both on CUDA device " + std::to_string(comm.device));
        return false;
    }
    std::lock_guard lock(comm.mutex);
    comm.links[(size_t)theirs.rank].socket = socket;
    return true;
}

static bool connect_to(Comm &comm, int rank) {
    sockaddr_un to;
    socklen_t length = address(comm, rank, to);
    for (;;) {
        int link = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connect(link, (sockaddr *)&to, length) == 0) return exchange_hellos(comm, link);
        close(link);
        // The peer may not be there yet.
        if (stopped(comm, 2)) return false;
    }
}

static bool link_all(Comm &comm) {
    sockaddr_un here;
    socklen_t length = address(comm, comm.rank, here);
    int door = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(door, (sockaddr *)&here, length) != 0 || listen(door, comm.ranks) != 0) {
        close(door);
        comm.fail(INVALID_USAGE, "rank " + std::to_string(comm.rank) + " is there twice");
        return false;
    }
    bool good = true;
    for (int rank = 0; rank < comm.rank && good; rank++) good = connect_to(comm, rank);
    for (int later = comm.rank + 1; later < comm.ranks && good; later++) {
        good = !stopped(comm, -1, door);
        if (good) good = exchange_hellos(comm, accept4(door, nullptr, nullptr, SOCK_CLOEXEC));
    }
    close(door);
    return good;
}

// Reads one frame. False if the peer has gone: its pending transfers then never end.
static bool read_frame(Comm &comm, Link &link) {
    Header header;
    if (!read_all(link.socket, &header, sizeof header)) return false;
    std::vector<char> data(header.frame == Frame::Data ? header.bytes : 0);
    if (!read_all(link.socket, data.data(), data.size())) return false;
    std::lock_guard lock(comm.mutex);
    if (header.frame == Frame::Data) {
        void *moment = header.process == (uint32_t)getpid() ? header.moment : nullptr;
        link.data[header.index] = {std::move(data), moment};
        return true;
    }
    // The peer's send matches our receive, and its receive matches our send.
    bool is_send = header.frame == Frame::RecvReached;
    if (is_send) link.recv_bytes[header.index] = header.bytes;
    uint64_t &reached = is_send ? link.recvs_reached : link.sends_reached;
    reached = std::max(reached, header.index + 1);
    auto place = link.places.find({is_send, header.index});
    if (place != link.places.end()) demand(place->second.first, place->second.second);
    return true;
}

void serve(Shared comm) {
    bool good = link_all(*comm);
    {
        std::lock_guard lock(comm->mutex);
        if (good && comm->state == IN_PROGRESS) comm->state = SUCCESS;
        comm->changed.notify_all();
    }
    std::vector<bool> gone(comm->links.size());
    while (good) {
        std::vector<pollfd> waits = {{comm->wake[0], POLLIN, 0}};
        for (size_t peer = 0; peer < comm->links.size(); peer++)
            waits.push_back({gone[peer] ? -1 : comm->links[peer].socket, POLLIN, 0});
        poll(waits.data(), waits.size(), -1);
        if (waits[0].revents) return;
        for (size_t peer = 0; peer < comm->links.size(); peer++)
            if (waits[peer + 1].revents) gone[peer] = !read_frame(*comm, comm->links[peer]);
        wake_mover();
    }
}

void hang_up(Comm &comm) {
    comm.aborted = true;
    if (write(comm.wake[1], "x", 1) != 1) abort();
    // Another thread may still read or send a frame, so the sockets are closed only when nobody uses them any
    // more.
    {
        std::lock_guard lock(comm.mutex);
        for (Link &link : comm.links)
            if (link.socket >= 0) shutdown(link.socket, SHUT_RDWR);
    }
    comm.thread.join();
    // Lets pending work on streams end now.
    wake_mover();
}

Comm::~Comm() {
    for (Link &link : links)
        if (link.socket >= 0) close(link.socket);
    close(wake[0]);
    close(wake[1]);
}
