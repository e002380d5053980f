// The addresses that a kernel really uses, if PIPEWRIGHT_EMULATOR_ADDRESSES is set.
#pragma once

/// The bytes of address space for all memory, and where they are.
static const size_t ADDRESSES = (size_t)1 << 36;
char *addresses();
size_t addresses_used();

/// Whether kernels say what they use. NVRTC then compiles them so.
API int pw_watches();
struct PwModule;
/// Before a kernel runs, and after it: then its accesses are checked, as accesses of the running work.
void begin_watch(PwModule *module);
void end_watch(PwModule *module);
/// The kernel that runs reads these bytes, by what its compiler does not see.
void watch_read(CUdeviceptr start, size_t bytes);
