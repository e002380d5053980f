// Memory, and which work has used which part of it.
#pragma once

/// A use of some bytes by a piece of work.
struct Access {
    CUdeviceptr start, end;
    bool writes;
    size_t lane;
    uint64_t place;
    const char *name;
};

/// Memory of a device, or page-locked memory of the host, from its allocation until it is given to others.
struct Allocation {
    CUdeviceptr start;
    size_t bytes;
    /// Null for memory of the host.
    Device *device;
    /// From cuMemAllocAsync.
    bool ordered;
    /// Whether the host may still name it, and whether a stream, or the host, has freed it.
    bool live = true, freed = false;
    uint64_t number = 0;
    /// How many queued copies are still to write it.
    size_t writers = 0;
    std::vector<Access> accesses = {};
};

using Allocations = std::map<CUdeviceptr, std::shared_ptr<Allocation>>;
/// All, by address; freed ones too, for a while.
Allocations &allocations();
/// The allocation of an address, or null.
std::shared_ptr<Allocation> allocation_of(CUdeviceptr address);

/// Addresses for an allocation, in one part of the address space, aligned to 256; null if none are left. And
/// back.
void *take_addresses(size_t bytes);
void give_addresses(void *start, size_t bytes);

/// Whether work can use memory of devices that its own device cannot access.
enum class Reach { Direct, Any };

/// The running work uses these bytes. Complains if another work may use them at the same time.
void touches(CUdeviceptr start, size_t bytes, bool writes, Reach reach = Reach::Direct);
/// As `touches`, up to the end of the allocation; nothing if there is none.
void may_touch(CUdeviceptr start, bool writes);
/// The calling thread frees the memory now. Complains if it does not know that all uses are done.
void freed_by_host(Allocation &allocation);

/// Prints what is wrong, keeps it for tests, and breaks the device. A process that ends with a complaint that
/// no test has taken ends as failed.
void complain(Device *device, CUresult error, const std::string &text);
std::string text(const char *format, ...) __attribute__((format(printf, 1, 2)));
