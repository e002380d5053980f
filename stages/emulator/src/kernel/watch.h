// What g++ calls at each access if it compiles with -fsanitize=thread: here, marks for the driver.
#pragma once
#include "abi.h"

static PwWatch pw_watch;

#define PW_HOOK(result) \
    extern "C" __attribute__((visibility("hidden"), no_sanitize_thread, used)) result

static inline __attribute__((no_sanitize_thread, always_inline)) void
pw_mark(const void *start, unsigned long bytes, unsigned char mark) {
    unsigned long at = (unsigned long)start - pw_watch.start;
    if (at >= pw_watch.bytes) return;
    for (unsigned long i = at / 2; i <= (at + bytes - 1) / 2; i++) pw_watch.fine[i] |= mark;
    pw_watch.pages[at >> 12] = 1;
    pw_watch.pages[(at + bytes - 1) >> 12] = 1;
}

static inline __attribute__((no_sanitize_thread, always_inline)) void pw_write(void *start,
                                                                              unsigned long bytes) {
    pw_mark(start, bytes, PW_WRITES);
    unsigned long at = (char *)start - pw_dynamic_shared;
    if (at >= sizeof pw_dynamic_shared || !pw_watch.shared_writers) return;
    for (unsigned long i = 0; i < bytes; i++) pw_watch.shared_writers[at + i] = pw_watch.writer;
}

PW_HOOK(void) pw_misaligned(const void *, unsigned long);
#define PW_ACCESSES(bytes)                                                                           \
    PW_HOOK(void) __tsan_read##bytes(void *at) {                                                     \
        if ((unsigned long)at % bytes) pw_misaligned(at, bytes);                                     \
        pw_mark(at, bytes, PW_READS);                                                                \
    }                                                                                                \
    PW_HOOK(void) __tsan_write##bytes(void *at) {                                                    \
        if ((unsigned long)at % bytes) pw_misaligned(at, bytes);                                     \
        pw_write(at, bytes);                                                                         \
    }                                                                                                \
    PW_HOOK(void) __tsan_unaligned_read##bytes(void *at) { pw_mark(at, bytes, PW_READS); }           \
    PW_HOOK(void) __tsan_unaligned_write##bytes(void *at) { pw_write(at, bytes); }
PW_ACCESSES(1)
PW_ACCESSES(2)
PW_ACCESSES(4)
PW_ACCESSES(8)
PW_ACCESSES(16)
PW_HOOK(void) __tsan_read_range(void *at, unsigned long bytes) {
    for (unsigned long i = 0; i < bytes; i++) pw_mark((char *)at + i, 1, PW_READS);
}
PW_HOOK(void) __tsan_write_range(void *at, unsigned long bytes) {
    for (unsigned long i = 0; i < bytes; i++) pw_write((char *)at + i, 1);
}
PW_HOOK(void) __tsan_init() {}
PW_HOOK(void) __tsan_vptr_update(void **, void *) {}
