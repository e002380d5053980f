// Modules, functions and launches. An image is a shared object that the emulated NVRTC made.
#include "../hopper/hopper.h"
#include "watch.h"
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <elf.h>
#include <unistd.h>

static const int DEFAULT_SHARED = 48 << 10, MOST_SHARED = 227 << 10;

struct Function {
    Device *device;
    PwModule *module;
    const PwKernel *kernel;
    int most_dynamic_shared = DEFAULT_SHARED;
    bool loaded = false;
};

// How many functions were loaded by their first launch, which may have no memory for that.
static uint64_t loaded_late = 0;

// How many kernels this thread of the host has launched.
static thread_local uint64_t launched = 0;

struct Module {
    Device *device;
    void *library;
    PwModule *compiled;
    std::vector<std::unique_ptr<Function>> functions;
};

static size_t loaded = 0;
size_t modules_alive() { return loaded; }

// The length of a shared object. Its section headers come last.
static size_t length_of(const void *image) {
    auto *header = (const Elf64_Ehdr *)image;
    if (memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) return 0;
    return header->e_shoff + (size_t)header->e_shentsize * header->e_shnum;
}

API CUresult cuModuleLoadData(Module **module, const void *image) {
    MAY_FAIL;
    Lock lock(machine());
    if (CUresult result = usable()) return result;
    size_t length = length_of(image);
    if (length == 0) return FAIL(INVALID_IMAGE, "cuModuleLoadData of what the emulated NVRTC did not make");
    char path[] = "/tmp/pipewright-module-XXXXXX";
    int file = mkstemp(path);
    bool written = file >= 0 && write(file, image, length) == (ssize_t)length;
    close(file);
    void *library = written ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
    unlink(path);
    auto *compiled = library ? (PwModule *)dlsym(library, "pw_module") : nullptr;
    if (!compiled) return FAIL(INVALID_IMAGE, "cuModuleLoadData: %s", dlerror());
    loaded++;
    *module = new Module{current(), library, compiled, {}};
    return SUCCESS;
}

API CUresult cuModuleLoadDataEx(Module **module, const void *image, unsigned, void *, void **) {
    MAY_FAIL;
    return cuModuleLoadData(module, image);
}

// Queued launches may still run, so the code stays loaded.
API CUresult cuModuleUnload(Module *) {
    MAY_FAIL;
    Lock lock(machine());
    return loaded--, SUCCESS;
}

API CUresult cuModuleGetFunction(Function **function, Module *module, const char *name) {
    MAY_FAIL;
    Lock lock(machine());
    for (auto &known : module->functions)
        if (strcmp(known->kernel->name, name) == 0) return *function = known.get(), SUCCESS;
    for (size_t i = 0; i < module->compiled->kernel_count; i++) {
        const PwKernel *kernel = &module->compiled->kernels[i];
        if (strcmp(kernel->name, name) != 0) continue;
        module->functions.emplace_back(new Function{module->device, module->compiled, kernel});
        return *function = module->functions.back().get(), SUCCESS;
    }
    return NOT_FOUND;
}

API CUresult cuModuleGetFunctionCount(unsigned *count, Module *module) {
    MAY_FAIL;
    return *count = (unsigned)module->compiled->kernel_count, SUCCESS;
}

API CUresult cuModuleEnumerateFunctions(Function **functions, unsigned count, Module *module) {
    MAY_FAIL;
    for (size_t i = 0; i < count && i < module->compiled->kernel_count; i++)
        if (CUresult result = cuModuleGetFunction(&functions[i], module, module->compiled->kernels[i].name))
            return result;
    return SUCCESS;
}

API CUresult cuFuncLoad(Function *function) {
    MAY_FAIL;
    Lock lock(machine());
    if (CUresult result = usable()) return result;
    return function->loaded = true, SUCCESS;
}

// For tests: how many functions were loaded by their first launch.
API uint64_t pw_loaded_late() {
    Lock lock(machine());
    return loaded_late;
}

// For tests: how many kernels the calling thread has launched.
API uint64_t pw_launched() { return launched; }

enum { MAX_THREADS = 0, STATIC_SHARED = 1, REGISTERS = 4, MAX_DYNAMIC_SHARED = 8, CARVEOUT = 9 };

API CUresult cuFuncSetAttribute(Function *function, int attribute, int value) {
    MAY_FAIL;
    Lock lock(machine());
    if (attribute == CARVEOUT) return SUCCESS;
    if (attribute != MAX_DYNAMIC_SHARED || value < 0 || value > MOST_SHARED)
        return FAIL(INVALID_VALUE, "cuFuncSetAttribute of %s: attribute %d = %d", function->kernel->name,
                    attribute, value);
    function->most_dynamic_shared = value;
    return SUCCESS;
}

API CUresult cuFuncGetAttribute(int *value, int attribute, Function *function) {
    MAY_FAIL;
    switch (attribute) {
    case MAX_THREADS: return *value = (int)function->kernel->max_threads, SUCCESS;
    case STATIC_SHARED: return *value = 0, SUCCESS;
    case REGISTERS: return *value = 64, SUCCESS;
    case MAX_DYNAMIC_SHARED: return *value = function->most_dynamic_shared, SUCCESS;
    default: return FAIL(NOT_SUPPORTED, "cuFuncGetAttribute of attribute %d", attribute);
    }
}

API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, Function *, int threads, size_t) {
    MAY_FAIL;
    return *blocks = threads > 0 ? 2048 / threads : 0, SUCCESS;
}

static CUresult check(Function *function, PwDim grid, PwDim block, unsigned shared) {
    const char *name = function->kernel->name;
    unsigned long long threads = (unsigned long long)block.x * block.y * block.z;
    if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.y > 65535 || grid.z > 65535 || grid.x > 2147483647)
        return FAIL(INVALID_VALUE, "launch of %s: grid (%u, %u, %u)", name, grid.x, grid.y, grid.z);
    if (threads == 0 || threads > function->kernel->max_threads || block.z > 64)
        return FAIL(INVALID_VALUE, "launch of %s: block (%u, %u, %u), at most %u threads", name, block.x,
                    block.y, block.z, function->kernel->max_threads);
    unsigned most = (unsigned)std::max(function->most_dynamic_shared, DEFAULT_SHARED);
    if (shared > most)
        return FAIL(INVALID_VALUE, "launch of %s: %u bytes of shared memory, at most %u", name, shared, most);
    return SUCCESS;
}

/// What a launch may use: so many bytes, or all up to the end of the memory.
struct Use {
    CUdeviceptr start;
    size_t bytes;
    bool writes;
};

/// What a kernel's pointers say, and maps of tensors. A word of a class may be a pointer, to anything.
static std::vector<Use> uses_of(const PwKernel *kernel, void **params) {
    std::vector<Use> uses;
    for (unsigned long i = 0; i < kernel->argument_count; i++) {
        const PwArgument &argument = kernel->arguments[i];
        auto *words = (const CUdeviceptr *)params[i];
        if (argument.use != PW_NO_POINTER) uses.push_back({*words, 0, argument.use == PW_WRITES});
        for (size_t word = 0; word < argument.class_bytes / sizeof *words; word++) {
            if (allocation_of(words[word])) uses.push_back({words[word], 0, true});
            if (argument.class_bytes < word * sizeof *words + sizeof(Tensor)) continue;
            if (auto *tensor = tensor_at(words + word)) uses.push_back({tensor->start(), tensor->bytes(), false});
        }
    }
    return uses;
}

/// Room for arguments, aligned as maps of tensors are.
struct alignas(64) Arguments {
    char bytes[64];
};

static CUresult launch(Function *function, PwDim grid, PwDim block, unsigned shared, Stream *stream,
                       void **params) {
    // "A kernel launch will fail if it is issued to a stream that is not associated to the current device."
    if (stream->device != function->device || stream->device != current())
        return FAIL(INVALID_HANDLE, "launch of %s: its module is of device %d, %s, and device %d is current",
                    function->kernel->name, function->device->ordinal, lane_name(stream->lane).c_str(),
                    current()->ordinal);
    if (CUresult result = check(function, grid, block, shared)) return result;
    if (!function->loaded) loaded_late++, function->loaded = true;
    launched++;
    const PwKernel *kernel = function->kernel;
    PwModule *module = function->module;
    auto arguments = std::make_shared<std::vector<Arguments>>(kernel->bytes / sizeof(Arguments) + 1);
    kernel->capture(params, arguments->data());
    auto uses = uses_of(kernel, params);
    enqueue(stream, kernel->name, [=] {
        // Without a watch, a kernel may use all that its pointers point at.
        if (!module->watch)
            for (auto [start, bytes, writes] : uses)
                bytes ? touches(start, bytes, writes) : may_touch(start, writes);
        begin_watch(module);
        bool good = run_grid(module, kernel, arguments->data(), grid, block, shared);
        end_watch(module);
        if (!good) broken(stream->device, LAUNCH_FAILED);
        return Progress::Done;
    });
    return SUCCESS;
}

API CUresult cuLaunchKernel(Function *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                            unsigned by, unsigned bz, unsigned shared, void *handle, void **params,
                            void **extra) {
    MAY_FAIL;
    Stream *stream;
    {
        Lock lock(machine());
        if (CUresult result = usable()) return result;
        stream = stream_of(handle);
        if (!stream || extra)
            return FAIL(INVALID_VALUE, "launch of %s: no stream, or packed arguments",
                        function->kernel->name);
        if (CUresult result = launch(function, {gx, gy, gz}, {bx, by, bz}, shared, stream, params))
            return result;
    }
    return wait_for_room(stream);
}
