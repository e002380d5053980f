// Clocks, and the clocks of the host's threads.
#include "driver.h"
#include <set>

Known nothing() {
    static auto *none = new Known(std::make_shared<const Clock>());
    return *none;
}

bool knows(const Known &known, size_t lane, uint64_t place) {
    return lane < known->size() && (*known)[lane] >= place;
}

void learn(Known &known, const Known &others) {
    if (known == others) return;
    bool news = false;
    for (size_t lane = 0; lane < others->size() && !news; lane++) news = !knows(known, lane, (*others)[lane]);
    if (!news) return;
    auto all = std::make_shared<Clock>(*known);
    if (all->size() < others->size()) all->resize(others->size());
    for (size_t lane = 0; lane < others->size(); lane++)
        (*all)[lane] = std::max((*all)[lane], (*others)[lane]);
    known = all;
}

void learn(Known &known, size_t lane, uint64_t place, const Known &there) {
    // Who knows a place knows what was known there.
    if (place == 0 || knows(known, lane, place)) return;
    learn(known, there);
    auto all = std::make_shared<Clock>(*known);
    if (all->size() <= lane) all->resize(lane + 1);
    (*all)[lane] = place;
    known = all;
}

/// What the threads know, and what those knew that have ended.
static std::set<Known *> &threads = *new std::set<Known *>;
static Known &ended = *new Known(nothing());

/// A thread's clock, as long as the thread lives. Destructors of the thread may call CUDA after this one.
struct Thread {
    Known known = nothing();
    bool gone = false;

    Thread() {
        learn(known, ended);
        for (Known *other : threads) learn(known, *other);
        threads.insert(&known);
    }
    ~Thread() {
        Lock lock(machine());
        learn(ended, known);
        threads.erase(&known);
        gone = true;
    }
};

Known &host_known() {
    static thread_local bool *gone = nullptr;
    if (gone && *gone) return ended;
    static thread_local Thread thread;
    gone = &thread.gone;
    learn(thread.known, ended);
    return thread.known;
}
