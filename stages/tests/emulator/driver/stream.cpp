// Streams and events. A stream is lazy. Its work runs when a host waits for it, or when another running
// stream waits for an event after it. So work runs late unless something orders it, and a missing wait gives
// wrong numbers.
#include "driver.h"
#include <chrono>
#include <set>
#include <thread>

// Never destroyed, like everything that threads of the emulator may still use while the process ends.
static std::set<Event *> &live_events = *new std::set<Event *>;

// By how much the devices' clock is ahead of the machine's.
static double ahead = 0;

static double now() {
    using namespace std::chrono;
    return duration<double>(steady_clock::now().time_since_epoch()).count() + ahead;
}

// The devices' clock in seconds, for work that says how long it took.
API double pw_clock() {
    Lock lock(machine());
    return now();
}

API void pw_set_clock(double seconds) {
    Lock lock(machine());
    ahead += seconds - now();
}

std::recursive_mutex &machine() {
    static auto *mutex = new std::recursive_mutex;
    return *mutex;
}

Stream *stream_of(void *handle) {
    Device *device = current();
    if (handle == nullptr || handle == (void *)1 || handle == (void *)2)
        return device ? device->legacy : nullptr;
    for (Device *owner : devices())
        for (Stream *stream : owner->streams)
            if (stream == handle && !stream->destroyed) return stream;
    return nullptr;
}

uint64_t enqueue(Stream *stream, Work work) {
    stream->work.push_back(std::move(work));
    return ++stream->queued;
}

Progress run(Stream *stream, uint64_t place) {
    while (stream->done < place) {
        // The work stays at the head of the queue while it runs, because blocked work is tried again.
        if (stream->work.front()() == Progress::Blocked) return Progress::Blocked;
        stream->work.pop_front();
        stream->done++;
    }
    return Progress::Done;
}

CUresult wait(Stream *stream, uint64_t place) {
    for (;;) {
        {
            Lock lock(machine());
            Progress progress = run(stream, place);
            if (stream->device->error) return stream->device->error;
            if (progress == Progress::Done) return SUCCESS;
        }
        std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
}

CUresult wait_all(Device *device) {
    std::vector<std::pair<Stream *, uint64_t>> ends;
    {
        Lock lock(machine());
        for (Stream *stream : device->streams) ends.push_back({stream, stream->queued});
    }
    for (auto &end : ends)
        if (CUresult result = wait(end.first, end.second)) return result;
    return SUCCESS;
}

API CUresult cuStreamCreateWithPriority(Stream **stream, unsigned flags, int) {
    Lock lock(machine());
    if (CUresult result = usable()) return result;
    *stream = new Stream{current(), (flags & 1) == 0};
    current()->streams.push_back(*stream);
    return SUCCESS;
}

API CUresult cuStreamCreate(Stream **stream, unsigned flags) {
    return cuStreamCreateWithPriority(stream, flags, 0);
}

API CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest) {
    if (least) *least = 0;
    if (greatest) *greatest = -5;
    return SUCCESS;
}

// Does not wait. If work is left, the stream is kept: the work still runs when a device is waited for, and
// records may refer to the stream.
API CUresult cuStreamDestroy_v2(void *handle) {
    Lock lock(machine());
    Stream *stream = stream_of(handle);
    if (!handle || !stream) return FAIL(INVALID_HANDLE, "cuStreamDestroy of no stream");
    stream->destroyed = true;
    auto &streams = stream->device->streams;
    if (run(stream, stream->queued) == Progress::Done)
        streams.erase(std::find(streams.begin(), streams.end(), stream));
    return SUCCESS;
}

API CUresult cuStreamSynchronize(void *handle) {
    Stream *stream;
    uint64_t place;
    {
        Lock lock(machine());
        if (CUresult result = usable()) return result;
        if (!(stream = stream_of(handle))) return FAIL(INVALID_HANDLE, "cuStreamSynchronize of no stream");
        place = stream->queued;
    }
    return wait(stream, place);
}

API CUresult cuStreamQuery(void *handle) {
    Lock lock(machine());
    if (CUresult result = usable()) return result;
    Stream *stream = stream_of(handle);
    if (!stream) return FAIL(INVALID_HANDLE, "cuStreamQuery of no stream");
    Progress progress = run(stream, stream->queued);
    if (stream->device->error) return stream->device->error;
    return progress == Progress::Done ? SUCCESS : NOT_READY;
}

API CUresult cuEventCreate(Event **event, unsigned flags) {
    Lock lock(machine());
    if (CUresult result = usable()) return result;
    *event = new Event{(flags & 2) == 0, nullptr};
    live_events.insert(*event);
    return SUCCESS;
}

API CUresult cuEventDestroy_v2(Event *event) {
    Lock lock(machine());
    if (!live_events.erase(event)) return FAIL(INVALID_HANDLE, "cuEventDestroy of no event");
    delete event;
    return SUCCESS;
}

API CUresult cuEventRecord(Event *event, void *handle) {
    Lock lock(machine());
    if (CUresult result = usable()) return result;
    Stream *stream = stream_of(handle);
    if (!stream || !live_events.count(event))
        return FAIL(INVALID_HANDLE, "cuEventRecord of no event or stream");
    auto record = std::make_shared<Record>();
    record->stream = stream;
    record->place = enqueue(stream, [record] { return record->seconds = now(), Progress::Done; });
    event->record = record;
    return SUCCESS;
}

// The wait uses the event's record at the time of the call. A later record changes nothing for it.
API CUresult cuStreamWaitEvent(void *handle, Event *event, unsigned) {
    Lock lock(machine());
    if (CUresult result = usable()) return result;
    Stream *stream = stream_of(handle);
    if (!stream || !live_events.count(event))
        return FAIL(INVALID_HANDLE, "cuStreamWaitEvent of no event or stream");
    if (auto record = event->record) enqueue(stream, [record] { return run(record->stream, record->place); });
    return SUCCESS;
}

static CUresult recorded(Event *event, std::shared_ptr<Record> &record) {
    Lock lock(machine());
    if (CUresult result = usable()) return result;
    if (!live_events.count(event)) return FAIL(INVALID_HANDLE, "no such event");
    record = event->record;
    return SUCCESS;
}

API CUresult cuEventSynchronize(Event *event) {
    std::shared_ptr<Record> record;
    if (CUresult result = recorded(event, record)) return result;
    return record ? wait(record->stream, record->place) : SUCCESS;
}

API CUresult cuEventQuery(Event *event) {
    std::shared_ptr<Record> record;
    if (CUresult result = recorded(event, record)) return result;
    if (!record) return SUCCESS;
    Lock lock(machine());
    Progress progress = run(record->stream, record->place);
    if (record->stream->device->error) return record->stream->device->error;
    return progress == Progress::Done ? SUCCESS : NOT_READY;
}

API CUresult cuEventElapsedTime_v2(float *milliseconds, Event *start, Event *end) {
    std::shared_ptr<Record> from, to;
    if (CUresult result = recorded(start, from)) return result;
    if (CUresult result = recorded(end, to)) return result;
    if (!from || !to || !start->timed || !end->timed)
        return FAIL(INVALID_HANDLE, "cuEventElapsedTime of an event without time or never recorded");
    if (from->seconds < 0 || to->seconds < 0) return NOT_READY;
    *milliseconds = float((to->seconds - from->seconds) * 1e3);
    return SUCCESS;
}

API CUresult cuEventElapsedTime(float *milliseconds, Event *start, Event *end) {
    return cuEventElapsedTime_v2(milliseconds, start, end);
}

API CUresult cuLaunchHostFunc(void *handle, void (*function)(void *), void *data) {
    Lock lock(machine());
    if (CUresult result = usable()) return result;
    Stream *stream = stream_of(handle);
    if (!stream) return FAIL(INVALID_HANDLE, "cuLaunchHostFunc on no stream");
    enqueue(stream, [=] { return function(data), Progress::Done; });
    return SUCCESS;
}

// For the emulated NCCL and cuBLASLt. `work` returns 1 when it is done, or 0 to be tried again. Returns the
// place of the work, or 0 on failure. Also returns the stream of the handle.
API uint64_t pw_enqueue(void *handle, int (*work)(void *), void *argument, Stream **stream) {
    Lock lock(machine());
    *stream = usable() ? nullptr : stream_of(handle);
    if (!*stream) return 0;
    return enqueue(*stream, [=] { return work(argument) ? Progress::Done : Progress::Blocked; });
}

// Runs a stream up to `place`, if nothing blocks it, because a peer waits for that work. Returns whether it
// got there.
API int pw_advance(Stream *stream, uint64_t place) {
    Lock lock(machine());
    return run(stream, place) == Progress::Done;
}
