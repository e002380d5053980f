// Finds every pair of uses of the same memory that nothing orders, if at least one of the two writes. Streams
// run late, or as a test wants, but clocks say what may happen at the same time on a GPU. An allocation and a
// release by a stream write the whole memory, so they are uses too.
#include "driver.h"
#include <cstdarg>
#include <cstdlib>
#include <cstring>
#include <unistd.h>

/// More uses of an allocation are not kept: the oldest is forgotten.
static const size_t MOST_ACCESSES = 256;

static std::string &complaint = *new std::string;

std::string text(const char *format, ...) {
    char line[1024];
    va_list rest;
    va_start(rest, format);
    vsnprintf(line, sizeof line, format, rest);
    va_end(rest);
    return line;
}

void complain(Device *device, CUresult error, const std::string &what) {
    fprintf(stderr, "emulated CUDA: %s\n", what.c_str());
    if (complaint.empty()) complaint = what;
    if (device) broken(device, error);
}

// For tests of the emulator: the first complaint since the last call, or nothing. Mends all devices.
API void pw_complaint(char *into, size_t bytes) {
    Lock lock(machine());
    snprintf(into, bytes, "%s", complaint.c_str());
    complaint.clear();
    for (Device *device : devices()) device->error = SUCCESS;
}

// The text of an illegal access, for the program's own error message.
const char *last_complaint() { return complaint.empty() ? nullptr : complaint.c_str(); }

__attribute__((destructor)) static void tell_at_the_end() {
    if (complaint.empty()) return;
    fprintf(stderr, "emulated CUDA: this process fails because of: %s\n", complaint.c_str());
    _exit(86);
}

Allocations &allocations() {
    static auto *all = new Allocations;
    return *all;
}

std::shared_ptr<Allocation> allocation_of(CUdeviceptr address) {
    auto after = allocations().upper_bound(address);
    if (after == allocations().begin()) return nullptr;
    auto &[start, allocation] = *std::prev(after);
    return address < start + allocation->bytes ? allocation : nullptr;
}

static std::string name_of(const Allocation &allocation) {
    std::string place = allocation.device ? text("device %d", allocation.device->ordinal) : "the host";
    return text("allocation %llu, of %zu bytes on %s", (unsigned long long)allocation.number,
                allocation.bytes, place.c_str());
}

static std::string sentence(const Access &access, const Allocation &allocation) {
    return text("`%s` on %s, which %s its bytes %llu to %llu", access.name,
                lane_name(access.lane).c_str(), access.writes ? "writes" : "reads",
                access.start - allocation.start, access.end - allocation.start);
}

static bool overlap(const Access &one, const Access &other) {
    return one.start < other.end && other.start < one.end;
}

static void check(const Access &now, Allocation &allocation) {
    Device *device = running().stream->device;
    if (allocation.freed)
        return complain(device, ILLEGAL_ADDRESS,
                        "use of freed memory: " + name_of(allocation) + ": " + sentence(now, allocation));
    for (const Access &before : allocation.accesses) {
        if ((!now.writes && !before.writes) || !overlap(now, before)) continue;
        if (before.lane == now.lane || knows(running().stream->known, before.lane, before.place)) continue;
        return complain(device, ILLEGAL_ADDRESS,
                        "race on " + name_of(allocation) + ": nothing orders " + sentence(now, allocation) +
                            ", after " + sentence(before, allocation));
    }
}

// What the new use covers, and is known to it, says nothing more about any later use.
static void keep(const Access &now, Allocation &allocation) {
    auto &all = allocation.accesses;
    auto covered = [&](const Access &before) {
        return now.start <= before.start && before.end <= now.end && (now.writes || !before.writes) &&
               (before.lane == now.lane || knows(running().stream->known, before.lane, before.place));
    };
    all.erase(std::remove_if(all.begin(), all.end(), covered), all.end());
    if (all.size() >= MOST_ACCESSES) all.erase(all.begin());
    all.push_back(now);
}

static bool reaches(const Device *from, const Allocation &allocation) {
    if (!allocation.device || allocation.device == from) return true;
    // Access to a pool is for what cuMemAllocAsync gives; access to a context is for the rest.
    auto &peers = allocation.ordered ? allocation.device->readers : from->peers;
    const Device *wanted = allocation.ordered ? from : allocation.device;
    return std::find(peers.begin(), peers.end(), wanted) != peers.end();
}

static void use(Allocation &allocation, CUdeviceptr start, CUdeviceptr end, bool writes, Reach reach) {
    const Running &work = running();
    Access now = {start, end, writes, work.stream->lane, work.place, work.name};
    if (reach == Reach::Direct && !reaches(work.stream->device, allocation))
        complain(work.stream->device, ILLEGAL_ADDRESS,
                 "no access to another device: " + name_of(allocation) + ": " + sentence(now, allocation));
    check(now, allocation);
    keep(now, allocation);
}

void touches(CUdeviceptr start, size_t bytes, bool writes, Reach reach) {
    auto allocation = allocation_of(start);
    if (bytes == 0) return;
    if (!allocation || start + bytes > allocation->start + allocation->bytes)
        return complain(running().stream->device, ILLEGAL_ADDRESS,
                        text("`%s` on %s %s %zu bytes that are not inside one allocation", running().name,
                             lane_name(running().stream->lane).c_str(), writes ? "writes" : "reads", bytes));
    use(*allocation, start, start + bytes, writes, reach);
}

void may_touch(CUdeviceptr start, bool writes) {
    if (auto allocation = allocation_of(start))
        use(*allocation, start, allocation->start + allocation->bytes, writes, Reach::Direct);
}

void freed_by_host(Allocation &allocation) {
    for (const Access &access : allocation.accesses)
        if (!knows(host_known(), access.lane, access.place))
            return complain(allocation.device, ILLEGAL_ADDRESS,
                            "race on " + name_of(allocation) +
                                ": the host frees it, and has not waited for " +
                                sentence(access, allocation));
}

// For the emulated cuBLASLt and NCCL.
API void pw_touches(const void *start, size_t bytes, int writes) {
    touches((uintptr_t)start, bytes, writes != 0);
}
