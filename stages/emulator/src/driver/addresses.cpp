// Addresses of devices' memory: one part of the address space, so that shadows can be found by an offset.
#include "driver.h"
#include "watch.h"
#include <sys/mman.h>

// From this size on, memory that is given back goes back to the system. A workspace of a matrix product is
// smaller: every launch takes the same ones again.
static const size_t LARGE = 64 << 20;

// What was given back, by size.
static std::multimap<size_t, char *> &given = *new std::multimap<size_t, char *>;
static size_t used = 0;

static char *reserve(size_t bytes) {
    void *start =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start == MAP_FAILED) return nullptr;
    // Large pages: to fill large allocations page by page takes the system much of a test's time.
    madvise(start, bytes, MADV_HUGEPAGE);
    return (char *)start;
}

char *addresses() {
    static char *start = reserve(ADDRESSES);
    return start;
}

size_t addresses_used() { return used; }

void *take_addresses(size_t bytes) {
    auto found = given.lower_bound(bytes);
    if (found != given.end() && found->first == bytes) {
        char *start = found->second;
        given.erase(found);
        return start;
    }
    // Pages of their own for large ones, which are given back to the system in whole.
    size_t start = bytes < LARGE ? used : (used + 4095) / 4096 * 4096;
    if (!addresses() || start + bytes > ADDRESSES) return nullptr;
    used = start + bytes;
    return addresses() + start;
}

void give_addresses(void *start, size_t bytes) {
    if (bytes >= LARGE) madvise(start, bytes / 4096 * 4096, MADV_DONTNEED);
    given.insert({bytes, (char *)start});
}
