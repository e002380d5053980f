// Kernels that are compiled to be watched set a byte for every two bytes that they read or write, and one for
// every page. After a launch the bytes become ranges of addresses, and are cleared.
#include "../kernel/abi.h"
#include "driver.h"
#include "watch.h"
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>

/// More ranges than these of an allocation become one.
static const size_t MOST_RANGES = 64;
static const size_t PAGE = 4096, FINE = PAGE / 2;

API int pw_watches() {
    static const bool watches = getenv("PIPEWRIGHT_EMULATOR_ADDRESSES") != nullptr;
    return watches;
}

static unsigned char *shadow(size_t bytes) {
    void *start =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start == MAP_FAILED) abort();
    return (unsigned char *)start;
}

// Of the kernel that runs, or null.
static PwWatch *watch_now;

void begin_watch(PwModule *module) {
    watch_now = nullptr;
    if (!module->watch || !pw_watches()) return;
    static unsigned char *fine = shadow(ADDRESSES / 2), *pages = shadow(ADDRESSES / PAGE);
    static auto *writers = (unsigned long *)shadow(module->dynamic_shared_bytes * sizeof(unsigned long));
    *module->watch = {(unsigned long)addresses(), ADDRESSES, fine, pages, writers, 0};
    watch_now = module->watch;
}

void watch_read(CUdeviceptr start, size_t bytes) {
    if (!watch_now || start - watch_now->start >= watch_now->bytes) return;
    for (size_t at = start - watch_now->start; at < start - watch_now->start + bytes; at += 2) {
        watch_now->fine[at / 2] |= PW_READS;
        watch_now->pages[at / PAGE] = 1;
    }
}

// ---- Shared memory ----

/// The time is the number of fences so far. A writer's upper bits are its thread, from 1, and the others its
/// time.
static const unsigned TIME_BITS = 48;
static unsigned long fences;
static std::vector<unsigned long> &last_fence = *new std::vector<unsigned long>;

void watch_block(unsigned threads, size_t shared) {
    if (!watch_now) return;
    fences = 0;
    last_fence.assign(threads, 0);
    memset(watch_now->shared_writers, 0, shared * sizeof(unsigned long));
}

void watch_thread(unsigned thread) {
    if (watch_now) watch_now->writer = (thread + 1ul) << TIME_BITS | fences;
}

void watch_fence(unsigned thread) {
    if (!watch_now) return;
    last_fence[thread] = ++fences;
    watch_thread(thread);
}

int unfenced_writer(size_t offset, size_t bytes, unsigned reader) {
    if (!watch_now) return -1;
    for (size_t i = 0; i < bytes; i++) {
        unsigned long writer = watch_now->shared_writers[offset + i];
        unsigned long time = writer & ((1ul << TIME_BITS) - 1);
        int thread = (int)(writer >> TIME_BITS) - 1;
        if (thread >= 0 && last_fence[thread] <= time && last_fence[reader] <= time) return thread;
    }
    return -1;
}

void watch_landed(size_t offset, size_t bytes) {
    if (watch_now) memset(watch_now->shared_writers + offset, 0, bytes * sizeof(unsigned long));
}

struct Range {
    CUdeviceptr start, end;
};

/// The ranges of one kind, in rising order.
static void add(std::vector<Range> &ranges, CUdeviceptr start) {
    if (!ranges.empty() && ranges.back().end == start)
        ranges.back().end += 2;
    else
        ranges.push_back({start, start + 2});
}

static void collect(const PwWatch &watch, size_t page, std::vector<Range> &reads,
                    std::vector<Range> &writes) {
    unsigned char *marks = watch.fine + page * FINE;
    for (size_t i = 0; i < FINE; i++) {
        CUdeviceptr at = watch.start + page * PAGE + i * 2;
        if (marks[i] & PW_READS) add(reads, at);
        if (marks[i] & PW_WRITES) add(writes, at);
    }
    memset(marks, 0, FINE);
}

// An allocation of an odd number of bytes has a last mark for two.
static void report(CUdeviceptr start, CUdeviceptr end, CUdeviceptr limit, bool writes) {
    touches(start, (end == limit + 1 ? limit : end) - start, writes);
}

static void report(const std::vector<Range> &ranges, bool writes) {
    for (size_t i = 0, next = 0; i < ranges.size(); i = next) {
        auto allocation = allocation_of(ranges[i].start);
        CUdeviceptr limit = allocation ? allocation->start + allocation->bytes : ranges[i].end;
        while (next < ranges.size() && (next == i || ranges[next].start < limit)) next++;
        if (next - i > MOST_RANGES)
            report(ranges[i].start, ranges[next - 1].end, limit, writes);
        else
            for (size_t k = i; k < next; k++) report(ranges[k].start, ranges[k].end, limit, writes);
    }
}

void end_watch(PwModule *module) {
    if (!module->watch || !pw_watches()) return;
    const PwWatch &watch = *module->watch;
    std::vector<Range> reads, writes;
    size_t count = (addresses_used() + PAGE - 1) / PAGE;
    unsigned char *page = watch.pages, *end = page + count;
    for (; (page = (unsigned char *)memchr(page, 1, end - page)); page++) {
        *page = 0;
        collect(watch, page - watch.pages, reads, writes);
    }
    report(reads, false);
    report(writes, true);
}
