// Dynamic shared memory of the block that runs.
#include "hopper.h"
#include "../driver/watch.h"

static PwModule *module_now;
static unsigned shared_bytes;

static void shared_fence() { watch_fence(this_thread()); }

const PwHopper HOPPER = {step,         barrier_init,  barrier_init_fence, barrier_arrive,
                         barrier_wait, named_barrier, tensor_load,        tensor_prefetch,
                         shared_fence};

void begin_hopper(PwModule *module, unsigned threads, unsigned shared) {
    module_now = module, shared_bytes = shared;
    begin_warpgroups();
    begin_barriers();
    watch_block(threads, shared);
}

std::string left_undone() {
    std::string products = products_undone();
    return products.empty() ? loads_undone() : products;
}

unsigned char *shared_at(uint64_t offset, uint64_t bytes, const char *what) {
    if (offset + bytes > shared_bytes)
        give_up(text("%s: bytes %lu to %lu of dynamic shared memory, which has %u", what, offset,
                     offset + bytes, shared_bytes));
    return (unsigned char *)module_now->dynamic_shared + offset;
}

unsigned char *fenced_at(uint64_t offset, uint64_t bytes, const char *what) {
    unsigned char *start = shared_at(offset, bytes, what);
    int writer = unfenced_writer(offset, bytes, this_thread());
    if (writer >= 0)
        give_up(text("%s: thread %d wrote bytes at %lu of shared memory, and no shared_fence came since", what,
                     writer, offset));
    return start;
}
