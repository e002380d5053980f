// What the emulated NCCL and cuBLASLt need of the driver.
#include "driver.h"

// The multiprocessors of an H200. The attribute says fewer.
static const double MULTIPROCESSORS = 132;

// `work` returns 1 when it is done, or 0 to be tried again. Returns the place of the work, or 0 on failure.
// Also returns the stream of the handle.
API uint64_t pw_enqueue(void *handle, const char *name, int (*work)(void *), void *argument,
                        Stream **stream) {
    uint64_t place;
    {
        Lock lock(machine());
        *stream = usable() ? nullptr : stream_of(handle);
        if (!*stream) return 0;
        place = enqueue(*stream, name, [=] { return work(argument) ? Progress::Done : Progress::Blocked; });
    }
    wait_for_room(*stream);
    return place;
}

// Runs a stream up to `place`, if nothing blocks it, because a peer waits for that work. Returns whether it
// got there.
API int pw_advance(Stream *stream, uint64_t place) {
    Lock lock(machine());
    return run(stream, place) == Progress::Done;
}

API int pw_device_of(void *handle) {
    Lock lock(machine());
    Stream *stream = stream_of(handle);
    return stream ? stream->device->ordinal : -1;
}

// The device of the calling thread, or -1.
API int pw_current_device() { return usable() ? -1 : current()->ordinal; }

// The moment of the running work, to be learned once by another work of this process.
struct Moment {
    size_t lane;
    uint64_t place;
    Known known;
};

API void *pw_moment() { return new Moment{running().stream->lane, running().place, running().stream->known}; }

API void pw_learn(Moment *moment) {
    learn(running().stream->known, moment->lane, moment->place, moment->known);
    delete moment;
}

API void pw_learn_place(Stream *stream, uint64_t place) {
    learn(running().stream->known, stream->lane, place, stream->known);
}

// A kernel that waits for others holds this number of multiprocessors, or gives them back if the number is
// negative.
API void pw_hold(int device, int multiprocessors) {
    Lock lock(machine());
    devices()[device]->held += multiprocessors;
}

// How much longer products of a device take because of that.
API double pw_slowdown(int device) {
    Lock lock(machine());
    return MULTIPROCESSORS / std::max(1.0, MULTIPROCESSORS - devices()[device]->held);
}

// For tests: the bytes of page-locked memory that are in use.
API uint64_t pw_page_locked() {
    Lock lock(machine());
    uint64_t bytes = 0;
    for (auto &[start, allocation] : allocations())
        if (allocation->live && !allocation->device) bytes += allocation->bytes;
    return bytes;
}

// For tests: what a program has not given back, or nothing.
API void pw_left(char *into, size_t bytes) {
    Lock lock(machine());
    std::string left;
    size_t memory = 0, pinned = 0, streams = 0;
    for (auto &[start, allocation] : allocations())
        if (allocation->live) (allocation->device ? memory : pinned)++;
    for (Device *device : devices())
        for (Stream *stream : device->streams) streams += !stream->destroyed && stream != device->legacy;
    auto add = [&](size_t count, const char *what) {
        if (count) left += text("%s%zu %s", left.empty() ? "" : ", ", count, what);
    };
    add(memory, "allocations"), add(pinned, "page-locked allocations"), add(streams, "streams");
    add(events_alive(), "events"), add(modules_alive(), "modules");
    snprintf(into, bytes, "%s", left.c_str());
}
