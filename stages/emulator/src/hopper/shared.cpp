// Dynamic shared memory of the block that runs.
#include "hopper.h"

static PwModule *module_now;
static unsigned shared_bytes;

static void shared_fence() {}

const PwHopper HOPPER = {step,          barrier_init,  barrier_init_fence, barrier_arrive, barrier_wait,
                         named_barrier, tensor_load, tensor_prefetch,    shared_fence};

void begin_hopper(PwModule *module, unsigned threads, unsigned shared) {
    module_now = module, shared_bytes = shared;
    begin_warpgroups(threads);
    begin_barriers();
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
