// When streams run. Late, as they do if nothing is set, work runs only when somebody waits for it. Eager
// streams do each work as soon as they can. With a number, streams run at random, by that seed, whenever work
// is queued. In all three, one piece of work runs at a time.
#include "driver.h"
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>

struct Order {
    bool eager = false, random = false;
    std::mt19937_64 numbers;
};

static Order order_of(const char *setting) {
    if (!setting || strcmp(setting, "late") == 0) return {};
    if (strcmp(setting, "eager") == 0) return {true, false, {}};
    return {false, true, std::mt19937_64(strtoull(setting, nullptr, 10))};
}

static Order &order() {
    static auto *one = new Order(order_of(getenv("PIPEWRIGHT_EMULATOR_STREAMS")));
    return *one;
}

// For tests: the setting from now on, in place of the environment's.
API void pw_streams(const char *setting) {
    Lock lock(machine());
    order() = order_of(setting);
}

static void run_some() {
    auto &random = order().numbers;
    while (random() % 2) {
        auto &streams = devices()[random() % devices().size()]->streams;
        Stream *stream = streams[random() % streams.size()];
        run(stream, stream->done + random() % (stream->queued - stream->done + 1));
    }
}

void stir(Stream *stream) {
    if (order().eager) run(stream, stream->queued);
    if (order().random) run_some();
}

// As many launches as this may wait in a stream. Who queues one more waits until there is room.
static uint64_t most_queued() {
    static const char *const value = getenv("PIPEWRIGHT_EMULATOR_QUEUE");
    return value ? strtoull(value, nullptr, 10) : 1024;
}

CUresult wait_for_room(Stream *stream) {
    for (;;) {
        {
            Lock lock(machine());
            uint64_t waiting = stream->queued - stream->done;
            if (waiting > most_queued()) run(stream, stream->queued - most_queued());
            if (stream->device->error) return stream->device->error;
            if (stream->queued - stream->done <= most_queued()) return SUCCESS;
        }
        std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
}
