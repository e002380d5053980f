// What a compiled module of kernels and the driver know of each other.
#pragma once

struct PwDim {
    unsigned x, y, z;
};

/// Where the thread that runs now stands: the driver writes it at every switch of threads.
struct PwState {
    PwDim thread, block, block_dim, grid_dim;
};

/// What kernels ask of the driver.
struct PwRuntime {
    /// `__syncthreads`.
    void (*barrier)();
    /// Every lane of `mask` gives `bytes` bytes and gets those of all 32 lanes, in lane order.
    void (*exchange)(unsigned mask, const void *mine, void *all, unsigned bytes);
};

struct PwKernel {
    const char *name;
    /// The bound of `__launch_bounds__`, 1024 without one.
    unsigned max_threads;
    /// Bytes of the captured arguments.
    unsigned long bytes;
    /// Copies the arguments: a launch does it when it is called, not when it runs.
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
