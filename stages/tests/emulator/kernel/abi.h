// The interface between the driver and a compiled module of kernels.
#pragma once

struct PwDim {
    unsigned x, y, z;
};

/// The indices of the current thread. The driver writes them whenever it switches threads.
struct PwState {
    PwDim thread, block, block_dim, grid_dim;
};

/// The driver's functions for kernels.
struct PwRuntime {
    /// `__syncthreads`.
    void (*barrier)();
    /// Every lane of `mask` gives `bytes` bytes, and gets the bytes of all 32 lanes in lane order.
    void (*exchange)(unsigned mask, const void *mine, void *all, unsigned bytes);
};

struct PwKernel {
    const char *name;
    /// The bound in `__launch_bounds__`, or 1024.
    unsigned max_threads;
    /// The size of the captured arguments in bytes.
    unsigned long bytes;
    /// Copies the arguments. A launch does so when it is called, not when it runs.
    void (*capture)(void **params, void *into);
    /// Runs one thread.
    void (*call)(void *captured);
};

/// Exported by every module as `pw_module`.
struct PwModule {
    PwState *state;
    PwRuntime *runtime;
    char *dynamic_shared;
    unsigned long dynamic_shared_bytes;
    const PwKernel *kernels;
    unsigned long kernel_count;
};
