// The instructions of Hopper, in parts: products of warpgroups, barriers, loads of tensors.
#pragma once
#include "../driver/driver.h"
#include "../driver/fiber.h"
#include "../kernel/abi.h"

extern const PwHopper HOPPER;

/// Before a block of so many threads runs, with so many bytes of dynamic shared memory.
void begin_hopper(PwModule *module, unsigned threads, unsigned shared);
/// What a block has begun and not waited for, when all its threads have returned; or nothing.
std::string left_undone();

/// No thread can go on: ends loads that a thread waits for. False if there are none.
bool end_loads();

/// Dynamic shared memory at an offset. Fails the launch if the bytes are not all of the block's.
unsigned char *shared_at(uint64_t offset, uint64_t bytes, const char *what);
/// The same for what is no access of the thread itself. If kernels tell their accesses, fails the launch if
/// a thread wrote there, and no fence came since.
unsigned char *fenced_at(uint64_t offset, uint64_t bytes, const char *what);
/// Where the bytes of an address are in rows of so many bytes that are swizzled (16: they are not).
static inline uint64_t swizzled(uint64_t address, uint64_t row) {
    return address ^ (address >> 7 & (row / 16 - 1)) << 4;
}

// Products of warpgroups
void step(const PwStep *step);
void begin_warpgroups();
std::string products_undone();

// Barriers
void barrier_init(unsigned barrier, unsigned arrivals);
void barrier_init_fence();
void barrier_arrive(unsigned barrier, unsigned bytes);
void barrier_wait(unsigned barrier, unsigned parity);
void named_barrier(unsigned id, unsigned threads, bool waits);
void begin_barriers();
std::string loads_undone();

// Tensors
void tensor_load(unsigned to, const void *map, unsigned barrier, const int *coordinates);
void tensor_prefetch(const void *map);

/// What cuTensorMapEncodeTiled makes: the encoded map of a tensor of 16-bit numbers. The first dimension is
/// the one without a stride.
struct Tensor {
    uint64_t magic;
    /// Inverted, so that no launch takes it for a pointer.
    uint64_t hidden;
    uint64_t sizes[4], strides[3];
    uint32_t box[4];
    /// The bytes of a swizzled row, or 16.
    uint32_t row;

    CUdeviceptr start() const { return ~hidden; }
    /// From the first number to the last.
    uint64_t bytes() const;
    uint64_t box_bytes() const { return 2ull * box[0] * box[1] * box[2] * box[3]; }
};
/// The map at an address, or null if there is none.
const Tensor *tensor_at(const void *address);

/// A load that has begun. Its bytes come when somebody waits for the barrier.
struct Load {
    Tensor tensor;
    unsigned to;
    int from[4];
};
/// Adds a load to a barrier, whose phase then waits for its bytes.
void begin_load(unsigned barrier, const Load &load);
/// Copies the box of a load.
void land(const Load &load);
