// The interface between the driver and a compiled module of kernels.
#pragma once

struct PwDim {
    unsigned x, y, z;
};

/// The indices of the current thread. The driver writes them whenever it switches threads.
struct PwState {
    PwDim thread, block, block_dim, grid_dim;
    /// The number of the launch.
    unsigned long launch;
};

/// An instruction that all threads of a warpgroup execute: what it is, and the operands of this thread.
enum PwStepKind : unsigned char { PW_FENCE, PW_PRODUCT, PW_COMMIT, PW_WAIT, PW_MORE_REGISTERS, PW_FEWER_REGISTERS };
struct PwStep {
    PwStepKind kind;
    /// Of a product: whether the right matrix is transposed, and whether the sum is added to.
    bool transposed, add;
    /// The columns of a product, the groups that a wait leaves, or a number of registers.
    unsigned number;
    /// The matrices in shared memory. The left one is null if it is in registers.
    unsigned long left, right;
    const unsigned *left_registers;
    float *sum;
};

/// The driver's functions for the instructions of Hopper. Addresses are offsets in dynamic shared memory.
struct PwHopper {
    void (*step)(const PwStep *step);
    void (*barrier_init)(unsigned barrier, unsigned arrivals);
    void (*barrier_init_fence)();
    /// Announces bytes, and arrives.
    void (*barrier_arrive)(unsigned barrier, unsigned bytes);
    void (*barrier_wait)(unsigned barrier, unsigned parity);
    void (*named_barrier)(unsigned id, unsigned threads, bool waits);
    void (*tensor_load)(unsigned to, const void *map, unsigned barrier, const int *coordinates);
    void (*tensor_prefetch)(const void *map);
    void (*shared_fence)();
};

/// The driver's functions for kernels.
struct PwRuntime {
    /// `__syncthreads`.
    void (*barrier)();
    /// Every lane of `mask` gives `bytes` bytes, and gets the bytes of all 32 lanes in lane order.
    void (*exchange)(unsigned mask, const void *mine, void *all, unsigned bytes);
    /// The kernel does what a GPU cannot do: `what` is wrong with `value`. Does not return.
    void (*trap)(const char *what, unsigned long value);
    /// A thread declares a static variable in shared memory.
    void (*shares)(const void *start, unsigned long bytes);
    PwHopper hopper;
};

/// What a kernel does with a pointer that it gets.
enum PwUse : unsigned char { PW_NO_POINTER = 0, PW_READS = 1, PW_WRITES = 2 };

/// What a kernel does with an argument, if that is a pointer. If it is a class, it may hold pointers, and has
/// `class_bytes` bytes.
struct PwArgument {
    PwUse use;
    unsigned long class_bytes;
};

/// Marks of memory that a kernel has used: a byte for two bytes, and one for 4096 bytes. And who wrote each
/// byte of dynamic shared memory when: `writer` is the thread that runs, and the time.
struct PwWatch {
    unsigned long start, bytes;
    unsigned char *fine, *pages;
    unsigned long *shared_writers, writer;
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
    /// What it does with each argument.
    const PwArgument *arguments;
    unsigned long argument_count;
};

/// Exported by every module as `pw_module`.
struct PwModule {
    PwState *state;
    PwRuntime *runtime;
    char *dynamic_shared;
    unsigned long dynamic_shared_bytes;
    const PwKernel *kernels;
    unsigned long kernel_count;
    /// Null if it was not compiled to be watched.
    PwWatch *watch;
};
