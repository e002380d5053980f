// A tool that programs give their ranges by NVTX 3, as a profiler is one. It adds a line to the file
// PIPEWRIGHT_EMULATOR_RANGES for each begin and each end: the thread's id, the domain, and the name or `-`.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <sys/syscall.h>
#include <unistd.h>

typedef void (*Function)();
struct Callbacks {
    size_t bytes;
    int (*tables)(int module, Function ***table, unsigned *length);
};
struct Attributes {
    uint16_t version, bytes;
    uint32_t category;
    int32_t colour_type;
    uint32_t colour;
    int32_t payload_type, reserved;
    uint64_t payload;
    int32_t message_type;
    const char *message;
};
// How many functions the modules have, from number 1.
static const unsigned MODULES[] = {16, 9, 15, 7, 16, 7};

static void must(bool holds, const char *what) {
    if (holds) return;
    fprintf(stderr, "the tool of NVTX: %s\n", what);
    abort();
}

static void add(const char *domain, const char *name) {
    static std::mutex one;
    std::lock_guard lock(one);
    static FILE *file = fopen(getenv("PIPEWRIGHT_EMULATOR_RANGES"), "a");
    must(file, "no file for ranges");
    fprintf(file, "%ld %s %s\n", syscall(SYS_gettid), domain, name);
    fflush(file);
}

static const char *create(const char *name) { return name; }

static int push(const char *domain, const Attributes *what) {
    must(what->version == 3 && what->bytes == sizeof *what, "attributes of another version");
    must(what->message_type == 1, "a name that is no text");
    return add(domain, what->message), 0;
}

static int pop(const char *domain) { return add(domain, "-"), 0; }

extern "C" __attribute__((visibility("default"))) int
InitializeInjectionNvtx2(const void *(*exported)(uint32_t)) {
    auto *versions = (const uint32_t *)exported(3);
    must(versions && versions[2] == 3, "not NVTX 3");
    auto *callbacks = (const Callbacks *)exported(1);
    must(callbacks && callbacks->bytes >= sizeof *callbacks, "no callbacks");
    must(!exported(2), "a table that NVTX does not have");
    Function **table = nullptr;
    unsigned length = 0;
    for (int module : {0, 7})
        must(!callbacks->tables(module, &table, &length), "a module that NVTX does not have");
    for (int module = 1; module <= 6; module++) {
        must(callbacks->tables(module, &table, &length), "no module");
        must(length == MODULES[module - 1], "a table of another length");
        must(!table[0] && !table[length], "tables that do not begin and end with nothing");
        for (unsigned i = 1; i < length; i++) must(table[i], "functions that are missing");
    }
    callbacks->tables(5, &table, nullptr);
    *table[4] = (Function)push;
    *table[5] = (Function)pop;
    *table[12] = (Function)create;
    return 1;
}
