// What instructions of several threads need of the fibers (fiber.cpp).
#pragma once
#include <functional>
#include <string>

/// The calling thread of the block, and how many threads the block has.
unsigned this_thread();
unsigned threads_of_block();

/// Fails the launch. Does not return.
[[noreturn]] void give_up(const std::string &why);

/// Waits for all threads of the warp that have not returned. Each gives an address of its locals. True in the
/// thread that goes on first: only there they are valid. Null for threads that have returned. `where` is for
/// messages.
bool meet(const void *mine, const void *(&all)[32], const char *where);

/// Lets others run until `ready` says true. `where` says for a message what the thread waits for.
void wait_until(const std::function<bool()> &ready, const std::function<std::string()> &where);

/// The end of a thread's local memory. Whether bytes are in that of the calling thread, and alive.
char *end_of_locals(unsigned thread);
bool is_local(const void *start, size_t bytes);
