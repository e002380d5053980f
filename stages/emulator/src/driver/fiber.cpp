// Runs a block's threads as fibers on one thread of the host. Each runs until a barrier, an exchange with its
// warp, something else to wait for, or its end. Threads run in order, but in reverse order in every other block,
// so that a missing barrier shows. PIPEWRIGHT_EMULATOR_BACKWARDS reverses all of this, and the order of the blocks.
#include "../kernel/abi.h"
#include "../hopper/hopper.h"
#include "driver.h"
#include "fiber.h"
#include "watch.h"
#include <cstdlib>
#include <cstring>
#include <string>
#include <sys/mman.h>

enum class At { Start, Ready, Barrier, Exchange, Wait, End };

struct Fiber {
    void *stack_pointer = nullptr;
    char *stack = nullptr;
    unsigned thread = 0;
    PwDim place = {};
    At at = At::Start;
    // What this thread gives to an exchange and wants from it.
    unsigned mask = 0, bytes = 0;
    const void *mine = nullptr;
    void *all = nullptr;
    // What this thread waits for.
    const char *meets = nullptr;
    unsigned long meetings = 0, meetings_of_warp = 0;
    const std::function<bool()> *ready = nullptr;
    const std::function<std::string()> *where = nullptr;
};

static const unsigned WARP = 32, MOST_BYTES = 256;
static const unsigned long MOST_STATIC = 48 << 10, MOST_OF_BOTH = 227 << 10;
static const size_t STACK = 128 << 10;
// Stacks that begin at the same place of a page would share a few lines of the cache.
static const size_t SHIFT = 3 * 64, SHIFTS = 64;
static const uint64_t CANARY = 0x5049504557524947;

static std::vector<Fiber> &fibers = *new std::vector<Fiber>;
static std::vector<char *> &free_stacks = *new std::vector<char *>;
static Fiber *fiber_now;
static void *scheduler_stack_pointer;
static unsigned alive, waiting;
static std::string &complaint = *new std::string;
static const PwKernel *kernel_now;
static PwModule *module_now;
static void *arguments_now;
static PwDim block_dim_now;

#if defined(__x86_64__)
// Saves the registers that the calling convention preserves, switches the stack, and returns there.
asm(".text\n.local pw_switch\npw_switch:\n"
    "pushq %rbp\n pushq %rbx\n pushq %r12\n pushq %r13\n pushq %r14\n pushq %r15\n"
    "movq %rsp, (%rdi)\n movq %rsi, %rsp\n"
    "popq %r15\n popq %r14\n popq %r13\n popq %r12\n popq %rbx\n popq %rbp\n popq %rcx\n jmp *%rcx\n");
extern "C" void pw_switch(void **save, void *load);

static void *fresh_stack_pointer(char *stack, void (*entry)()) {
    void **top = (void **)(stack + STACK) - 2;
    *top = (void *)entry;
    return memset(top - 6, 0, 6 * sizeof(void *));
}
#else
// On other machines the C library switches, more slowly. A stack pointer is then a context.
#include <ucontext.h>
static void pw_switch(void **save, void *load) {
    ucontext_t here;
    *save = &here;
    swapcontext(&here, (ucontext_t *)load);
}

static void *fresh_stack_pointer(char *stack, void (*entry)()) {
    auto *context = (ucontext_t *)(stack + 64);
    getcontext(context);
    context->uc_stack = {.ss_sp = stack + 8192, .ss_flags = 0, .ss_size = STACK - 8192};
    makecontext(context, entry, 0);
    return context;
}
#endif

static char *take_stack() {
    if (free_stacks.empty()) {
        static size_t made = 0;
        void *memory = mmap(nullptr, STACK + SHIFT * SHIFTS, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED) abort();
        free_stacks.push_back((char *)memory + made++ % SHIFTS * SHIFT);
    }
    char *stack = free_stacks.back();
    free_stacks.pop_back();
    *(uint64_t *)stack = CANARY;
    return stack;
}

static void entry() {
    kernel_now->call(arguments_now);
    fiber_now->at = At::End;
    pw_switch(&fiber_now->stack_pointer, scheduler_stack_pointer);
}

static void check_stack(const Fiber &fiber) {
    if (*(uint64_t *)fiber.stack == CANARY) return;
    fprintf(stderr, "emulated CUDA: a thread's local memory is over 128 KiB\n");
    abort();
}

static void resume(Fiber &fiber) {
    if (fiber.at == At::Start) {
        fiber.stack = take_stack();
        fiber.stack_pointer = fresh_stack_pointer(fiber.stack, entry);
    }
    module_now->state->thread = fiber.place;
    fiber.at = At::Ready;
    fiber_now = &fiber;
    watch_thread(fiber.thread);
    pw_switch(&scheduler_stack_pointer, fiber.stack_pointer);
    if (fiber.at == At::Barrier || fiber.at == At::End) check_stack(fiber);
    if (fiber.at != At::End) return;
    // The next thread to start gets this stack, which is still in the cache.
    free_stacks.push_back(fiber.stack);
    fiber.stack = nullptr;
    alive--;
}

static void barrier() {
    fiber_now->at = At::Barrier;
    waiting++;
    pw_switch(&fiber_now->stack_pointer, scheduler_stack_pointer);
}

static void copy(void *to, const void *from, unsigned bytes) {
    // Most exchanges are of numbers of 4 bytes, and a known size is copied without a call.
    bytes == 4 ? memcpy(to, from, 4) : memcpy(to, from, bytes);
}

// Completes the exchange of a lane with those in its mask if all of them that have not returned have reached it.
// A lane that has returned gives NaN.
static bool exchanged(const Fiber &fiber) {
    unsigned first = fiber.thread / WARP * WARP, mask = fiber.mask, bytes = fiber.bytes;
    bool meeting = fiber.meets;
    Fiber *lanes = &fibers[first];
    unsigned count = std::min(WARP, (unsigned)fibers.size() - first), own = fiber.thread - first;
    auto gives = [&](unsigned lane) { return (mask >> lane & 1) && lanes[lane].at != At::End; };
    auto is_missing = [&](unsigned lane) {
        const Fiber &other = lanes[lane];
        return gives(lane) && (other.at != At::Exchange || other.mask != mask || other.bytes != bytes ||
                               (other.meets != nullptr) != meeting);
    };
    // One of the neighbours runs next, so it is the likeliest to be missing.
    if (is_missing(own + 1 < count ? own + 1 : 0) || is_missing(own > 0 ? own - 1 : count - 1)) return false;
    for (unsigned lane = 0; lane < count; lane++)
        if (is_missing(lane)) return false;
    static char gathered[WARP * MOST_BYTES];
    for (unsigned lane = 0; lane < WARP; lane++)
        if (lane < count && gives(lane))
            copy(gathered + lane * bytes, lanes[lane].mine, bytes);
        else
            memset(gathered + lane * bytes, 0xFF, bytes);
    for (unsigned lane = 0; lane < count; lane++) {
        if (!gives(lane)) continue;
        memcpy(lanes[lane].all, gathered, WARP * bytes);
        lanes[lane].at = At::Ready;
    }
    return true;
}

static void exchange(unsigned mask, const void *mine, void *all, unsigned bytes) {
    Fiber *fiber = fiber_now;
    unsigned lane = fiber->thread % WARP;
    if (bytes > MOST_BYTES) complaint = "an exchange of more than 256 bytes";
    if (!(mask >> lane & 1)) complaint = "a lane that is not in the mask of its own warp operation";
    fiber->mask = mask, fiber->bytes = bytes, fiber->mine = mine, fiber->all = all;
    fiber->at = At::Exchange;
    if (complaint.empty() && exchanged(*fiber)) return;
    pw_switch(&fiber->stack_pointer, scheduler_stack_pointer);
}

unsigned this_thread() { return fiber_now->thread; }
unsigned threads_of_block() { return (unsigned)fibers.size(); }
char *end_of_locals(unsigned thread) { return fibers[thread].stack + STACK; }
bool is_local(const void *start, size_t bytes) {
    return (char *)start >= (char *)__builtin_frame_address(0) &&
           (char *)start + bytes <= end_of_locals(fiber_now->thread);
}

void give_up(const std::string &why) {
    complaint = text("thread %u: %s", fiber_now->thread, why.c_str());
    for (;;) pw_switch(&fiber_now->stack_pointer, scheduler_stack_pointer);
}

bool meet(const void *mine, const void *(&all)[WARP], const char *where) {
    Fiber &fiber = *fiber_now;
    fiber.meets = where;
    exchange(0xffffffffu, &mine, all, sizeof mine);
    fiber.meets = nullptr;
    unsigned long &meetings = fibers[fiber.thread / WARP * WARP].meetings_of_warp;
    if (meetings > fiber.meetings++) return false;
    meetings++;
    for (const void *&one : all)
        if (one == (void *)-1) one = nullptr;
    return true;
}

void wait_until(const std::function<bool()> &ready, const std::function<std::string()> &where) {
    if (ready()) return;
    fiber_now->at = At::Wait;
    fiber_now->ready = &ready, fiber_now->where = &where;
    pw_switch(&fiber_now->stack_pointer, scheduler_stack_pointer);
}

static void trap(const char *what, unsigned long value) {
    give_up(text("%s at address %lu, which is not aligned", what, value));
}

static std::map<const void *, unsigned long> &shared_now = *new std::map<const void *, unsigned long>;
static void shares(const void *start, unsigned long bytes) { shared_now[start] = bytes; }

// The static shared memory that the kernel has declared so far, and its dynamic one.
static void check_shared(unsigned dynamic) {
    unsigned long bytes = 0;
    for (auto &[start, length] : shared_now) bytes += length;
    if (bytes > MOST_STATIC)
        complaint = text("%lu bytes of static shared memory, at most %lu", bytes, MOST_STATIC);
    else if (bytes + dynamic > MOST_OF_BOTH)
        complaint = text("%lu bytes of static and %u of dynamic shared memory, at most %lu together", bytes,
                         dynamic, MOST_OF_BOTH);
}

// Runs the threads of a warp until each waits for another warp or has returned. True if any of them ran.
static bool run_warp(unsigned first, bool backwards) {
    unsigned count = std::min(WARP, (unsigned)fibers.size() - first);
    Fiber *lanes = &fibers[first];
    bool any = false;
    for (bool again = true; again;) {
        again = false;
        for (unsigned i = 0; i < count && complaint.empty(); i++) {
            Fiber &fiber = lanes[backwards ? count - 1 - i : i];
            if (fiber.at == At::Wait && (*fiber.ready)()) fiber.at = At::Ready;
            if (fiber.at != At::Ready && fiber.at != At::Start) continue;
            resume(fiber);
            any = again = true;
        }
        // The last lane completes an exchange itself, unless the others wait for one that has returned.
        for (unsigned i = 0; i < count && !again && complaint.empty(); i++)
            again = lanes[i].at == At::Exchange && exchanged(lanes[i]);
    }
    return any;
}

static std::string place_of(const Fiber &fiber) {
    static const char *const PLACES[] =
        {"not started", "running", "at a barrier", "at a warp operation", "waiting", "returned"};
    if (fiber.at == At::Wait) return (*fiber.where)();
    if (fiber.at == At::Exchange && fiber.meets) return std::string("at ") + fiber.meets;
    return PLACES[(int)fiber.at];
}

static std::string stuck() {
    std::string text = "threads wait for one another for ever:";
    for (size_t i = 0, from = 0; i < fibers.size(); i++) {
        std::string place = place_of(fibers[i]);
        if (i + 1 < fibers.size() && place_of(fibers[i + 1]) == place) continue;
        text += " " + std::to_string(from) + ".." + std::to_string(i) + " " + place + ";";
        from = i + 1;
    }
    return text;
}

static void run_block(unsigned threads, bool backwards) {
    fibers.resize(threads);
    unsigned x = block_dim_now.x, y = block_dim_now.y;
    for (unsigned i = 0; i < threads; i++)
        fibers[i] = Fiber{.thread = i, .place = {i % x, i / x % y, i / x / y}};
    alive = threads;
    waiting = 0;
    unsigned warps = (threads + WARP - 1) / WARP;
    while (alive > 0 && complaint.empty()) {
        bool any = false;
        for (unsigned w = 0; w < warps; w++)
            any |= run_warp((backwards ? warps - 1 - w : w) * WARP, backwards);
        if (waiting == alive) {
            // The barrier does not wait for threads that have returned.
            for (Fiber &fiber : fibers)
                if (fiber.at == At::Barrier) fiber.at = At::Ready;
            waiting = 0;
        } else if (!any && complaint.empty() && !end_loads()) {
            complaint = stuck();
        }
    }
    for (Fiber &fiber : fibers)
        if (fiber.stack) free_stacks.push_back(fiber.stack);
}

static std::string &failure = *new std::string;

// For tests: why a launch failed since the last call, or nothing.
API void pw_failed_launch(char *into, size_t bytes) {
    Lock lock(machine());
    snprintf(into, bytes, "%s", failure.c_str());
    failure.clear();
}

bool run_grid(PwModule *module, const PwKernel *kernel, void *arguments, PwDim grid, PwDim block,
              unsigned shared) {
    static const bool backwards = getenv("PIPEWRIGHT_EMULATOR_BACKWARDS") != nullptr;
    *module->runtime = {barrier, exchange, trap, shares, HOPPER};
    shared_now.clear();
    kernel_now = kernel, module_now = module, arguments_now = arguments, block_dim_now = block;
    PwState &state = *module->state;
    state.block_dim = block, state.grid_dim = grid;
    state.launch++;
    unsigned threads = block.x * block.y * block.z;
    uint64_t blocks = (uint64_t)grid.x * grid.y * grid.z;
    for (uint64_t i = 0; i < blocks; i++) {
        uint64_t index = backwards ? blocks - 1 - i : i;
        state.block = {(unsigned)(index % grid.x), (unsigned)(index / grid.x % grid.y),
                       (unsigned)(index / grid.x / grid.y)};
        memset(module->dynamic_shared, 0xFF, shared);
        complaint.clear();
        begin_hopper(module, threads, shared);
        run_block(threads, (index & 1) != backwards);
        if (complaint.empty()) check_shared(shared);
        if (complaint.empty()) complaint = left_undone();
        if (complaint.empty()) continue;
        failure = text("kernel %s, block (%u, %u, %u): %s", kernel->name, state.block.x, state.block.y,
                       state.block.z, complaint.c_str());
        fprintf(stderr, "emulated CUDA: %s\n", failure.c_str());
        return false;
    }
    return true;
}
