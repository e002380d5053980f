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

/// A block begins, with so many bytes of shared memory, and a thread of it goes on.
void watch_block(unsigned threads, size_t shared);
void watch_thread(unsigned thread);
/// The thread orders what it knows of shared memory before what loads and products do with it.
void watch_fence(unsigned thread);
/// A thread that wrote bytes that no fence has ordered before the reader, or -1.
int unfenced_writer(size_t offset, size_t bytes, unsigned reader);
/// A load has written these bytes.
void watch_landed(size_t offset, size_t bytes);
