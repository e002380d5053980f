// Barriers in shared memory (mbarrier), and those with a number (bar.sync, bar.arrive). Source: PTX ISA,
// "Parallel Synchronization and Communication Instructions".
#include "hopper.h"
#include <cstring>

static const unsigned MOST_ARRIVALS = (1 << 20) - 1;
static const long MOST_BYTES = (1 << 20) - 1;
// What is in shared memory where a barrier is.
static const uint64_t MARK = 0x6d62617272696572;

struct Barrier {
    unsigned arrivals, pending;
    // Bytes that are announced and have not come. Fewer than none if they have come first.
    long bytes = 0;
    unsigned phase = 0;
    // Whether a thread has seen the end of the phase before, and whether loads may use the barrier.
    bool seen = true, fenced = false;
    unsigned maker, waiting = 0;
    std::vector<Load> loads = {};
};
static std::map<unsigned, Barrier> &barriers = *new std::map<unsigned, Barrier>;

static Barrier &barrier_at(unsigned at, const char *what) {
    auto found = barriers.find(at);
    if (found == barriers.end()) give_up(text("%s: there is no barrier at %u", what, at));
    if (memcmp(shared_at(at, 8, what), &MARK, 8) != 0)
        give_up(text("%s: the barrier at %u was written over", what, at));
    return found->second;
}

void barrier_init(unsigned at, unsigned arrivals) {
    if (at % 8) give_up(text("barrier_init: %u is not a multiple of 8", at));
    if (arrivals < 1 || arrivals > MOST_ARRIVALS)
        give_up(text("barrier_init of the barrier at %u: %u arrivals", at, arrivals));
    if (barriers.count(at)) give_up(text("barrier_init: there is a barrier at %u already", at));
    memcpy(shared_at(at, 8, "barrier_init"), &MARK, 8);
    barriers[at] = {.arrivals = arrivals, .pending = arrivals, .maker = this_thread()};
}

void barrier_init_fence() {
    for (auto &[at, barrier] : barriers)
        if (barrier.maker == this_thread()) barrier.fenced = true;
}

// Ends the phase if all have come.
static void settle(Barrier &barrier) {
    if (barrier.pending || barrier.bytes) return;
    barrier.phase++;
    barrier.pending = barrier.arrivals;
    barrier.seen = false;
}

void barrier_arrive(unsigned at, unsigned bytes) {
    Barrier &barrier = barrier_at(at, "an arrival");
    if (!barrier.seen)
        give_up(text("an arrival at the barrier at %u in phase %u, before any thread has waited for phase %u", at,
                     barrier.phase, barrier.phase - 1));
    if (barrier.pending == 0)
        give_up(text("more than %u arrivals at the barrier at %u in phase %u", barrier.arrivals, at,
                     barrier.phase));
    barrier.bytes += bytes;
    if (barrier.bytes > MOST_BYTES)
        give_up(text("the barrier at %u expects %ld bytes, at most %ld", at, barrier.bytes, MOST_BYTES));
    barrier.pending--;
    settle(barrier);
}

void begin_load(unsigned at, const Load &load) {
    Barrier &barrier = barrier_at(at, "tensor_load");
    if (!barrier.fenced)
        give_up(text("tensor_load: no barrier_init_fence after the init of the barrier at %u", at));
    uint64_t end = load.to + load.tensor.box_bytes();
    for (auto &[other_at, other] : barriers)
        for (const Load &before : other.loads)
            if (load.to < before.to + before.tensor.box_bytes() && before.to < end)
                give_up(text("tensor_load to %u: nobody has waited for the load to %u before it", load.to,
                             before.to));
    memset(fenced_at(load.to, load.tensor.box_bytes(), "tensor_load"), 0xff, load.tensor.box_bytes());
    barrier.loads.push_back(load);
}

// Loads end when somebody waits for them and nobody can go on. Until then the target holds NaN. So a test finds
// a kernel that reads too early, or that loads over what others still read.
bool end_loads() {
    for (auto &[at, barrier] : barriers) {
        if (!barrier.waiting || barrier.loads.empty()) continue;
        for (const Load &load : barrier.loads) land(load), barrier.bytes -= load.tensor.box_bytes();
        barrier.loads.clear();
        settle(barrier);
        return true;
    }
    return false;
}

void barrier_wait(unsigned at, unsigned parity) {
    Barrier &barrier = barrier_at(at, "barrier_wait");
    if (parity > 1) give_up(text("barrier_wait: parity %u", parity));
    barrier.waiting++;
    wait_until([&] { return (barrier.phase & 1) != parity; },
               [&] {
                   return text("at the barrier at %u for phase %u, to which %u arrivals and %ld bytes are to come",
                               at, barrier.phase, barrier.pending, barrier.bytes);
               });
    barrier.waiting--;
    barrier.seen = true;
}

// ---- Barriers with a number ----

struct Named {
    unsigned threads = 0, arrived = 0;
    // The warps that have arrived, and how often the barrier was complete.
    uint32_t warps = 0;
    uint64_t turn = 0;
};
static const unsigned MOST_NAMED = 16, WARP = 32;
static Named named[MOST_NAMED];
// For which turn of its barrier a warp waits.
static uint64_t turns[32];

struct Arrival {
    unsigned id, threads;
    bool waits;
};

static void arrive(const Arrival &arrival, unsigned warp) {
    Named &barrier = named[arrival.id];
    if (barrier.arrived && barrier.threads != arrival.threads)
        give_up(text("named barrier %u: %u threads, and others say %u", arrival.id, arrival.threads,
                     barrier.threads));
    if (barrier.warps >> warp & 1)
        give_up(text("named barrier %u: warp %u arrives twice in a turn", arrival.id, warp));
    turns[warp] = barrier.turn;
    barrier.threads = arrival.threads;
    barrier.warps |= 1u << warp;
    barrier.arrived += WARP;
    if (barrier.arrived < barrier.threads) return;
    barrier = Named{.turn = barrier.turn + 1};
}

void named_barrier(unsigned id, unsigned threads, bool waits) {
    if (id == 0 || id >= MOST_NAMED) give_up(text("named barrier %u: 1 to 15 are free", id));
    if (threads == 0 || threads % WARP || threads > threads_of_block())
        give_up(text("named barrier %u: %u threads, of %u", id, threads, threads_of_block()));
    const Arrival mine = {id, threads, waits};
    const void *all[WARP];
    if (meet(&mine, all, "a named barrier, with its warp")) {
        for (const void *one : all) {
            auto *other = (const Arrival *)one;
            if (other && (other->id != id || other->threads != threads || other->waits != waits))
                give_up(text("threads of a warp are at named barriers %u and %u, or not in the same way", id,
                             other->id));
        }
        arrive(mine, this_thread() / WARP);
    }
    if (!waits) return;
    uint64_t turn = turns[this_thread() / WARP];
    wait_until([=] { return named[id].turn != turn; },
               [=] { return text("at named barrier %u, where %u of %u threads are", id, named[id].arrived,
                                 named[id].threads); });
}

void begin_barriers() {
    barriers.clear();
    for (Named &one : named) one = Named{};
}

std::string loads_undone() {
    for (auto &[at, barrier] : barriers)
        if (!barrier.loads.empty())
            return text("the block has ended, and nobody has waited at the barrier at %u for its loads", at);
    return "";
}
