// Streams and events. A stream is lazy. Its work runs when a host waits for it, or when another running
// stream waits for an event after it. So work runs late unless something orders it, and a missing wait gives
// wrong numbers.
#include "driver.h"
#include <chrono>
#include <set>
#include <thread>
#include <utility>

// Never destroyed, like everything that threads of the emulator may still use while the process ends.
static std::set<Event *> &live_events = *new std::set<Event *>;

size_t events_alive() { return live_events.size(); }

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

static std::vector<std::string> &lane_names = *new std::vector<std::string>;

std::string lane_name(size_t lane) { return lane_names[lane]; }

Stream *new_stream(Device *device, bool waits_for_legacy) {
    char thread[16] = "";
    pthread_getname_np(pthread_self(), thread, sizeof thread);
    lane_names.push_back(text("stream %d of device %d (thread %s)", device->streams_made++, device->ordinal,
                              thread));
    auto *stream = new Stream{device, waits_for_legacy};
    stream->lane = lane_names.size() - 1;
    device->streams.push_back(stream);
    return stream;
}

uint64_t enqueue(Stream *stream, const char *name, Work work) {
    stream->work.push_back({name, std::move(work), host_known()});
    uint64_t place = ++stream->queued;
    stir(stream);
    return place;
}

static Running work_now;
const Running &running() { return work_now; }

Progress run(Stream *stream, uint64_t place) {
    while (stream->done < place) {
        // The work stays at the head of the queue while it runs, because blocked work is tried again.
        Task &task = stream->work.front();
        if (task.host != stream->host) learn(stream->known, stream->host = task.host);
        Running outer = std::exchange(work_now, {stream, stream->done + 1, task.name});
        Progress progress = task.work();
        work_now = outer;
        if (progress == Progress::Blocked) return Progress::Blocked;
        stream->work.pop_front();
        stream->done++;
    }
    return Progress::Done;
}

CUresult wait(Stream *stream, uint64_t place, const Record *record) {
    for (;;) {
        {
            Lock lock(machine());
            Progress progress = run(stream, place);
            if (stream->device->error) return stream->device->error;
            if (progress == Progress::Done) {
                learn(host_known(), stream->lane, place, record ? record->known : stream->known);
                return SUCCESS;
            }
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
    Lock lock(machine());
    learn(host_known(), device->finished);
    return SUCCESS;
}

API CUresult cuStreamCreateWithPriority(Stream **stream, unsigned flags, int priority) {
    MAY_FAIL;
    Lock lock(machine());
    if (CUresult result = usable()) return result;
    *stream = new_stream(current(), (flags & 1) == 0);
    (*stream)->priority = priority;
    return SUCCESS;
}

// For tests: the priorities of the streams that a program has made, in their order.
API void pw_priorities(char *into, size_t bytes) {
    Lock lock(machine());
    std::string all;
    for (Device *device : devices())
        for (Stream *stream : device->streams)
            if (stream != device->legacy) all += text("%s%d", all.empty() ? "" : " ", stream->priority);
    snprintf(into, bytes, "%s", all.c_str());
}

API CUresult cuStreamCreate(Stream **stream, unsigned flags) {
    MAY_FAIL;
    return cuStreamCreateWithPriority(stream, flags, 0);
}

API CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest) {
    MAY_FAIL;
    if (least) *least = 0;
    if (greatest) *greatest = -5;
    return SUCCESS;
}

// Does not wait. If work is left, the stream is kept: the work still runs when a device is waited for, and
// records may refer to the stream.
API CUresult cuStreamDestroy_v2(void *handle) {
    MAY_FAIL;
    Lock lock(machine());
    Stream *stream = stream_of(handle);
    if (!handle || !stream) return FAIL(INVALID_HANDLE, "cuStreamDestroy of no stream");
    stream->destroyed = true;
    auto &streams = stream->device->streams;
    if (run(stream, stream->queued) == Progress::Done) {
        learn(stream->device->finished, stream->lane, stream->done, stream->known);
        streams.erase(std::find(streams.begin(), streams.end(), stream));
    }
    return SUCCESS;
}

API CUresult cuStreamSynchronize(void *handle) {
    MAY_FAIL;
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

// Whether a stream has got to a place. If so, the host knows what was known there.
static CUresult reached(Stream *stream, uint64_t place, const Known &there) {
    Progress progress = run(stream, place);
    if (stream->device->error) return stream->device->error;
    if (progress == Progress::Blocked) return NOT_READY;
    learn(host_known(), stream->lane, place, there);
    return SUCCESS;
}

API CUresult cuStreamQuery(void *handle) {
    MAY_FAIL;
    Lock lock(machine());
    if (CUresult result = usable()) return result;
    Stream *stream = stream_of(handle);
    if (!stream) return FAIL(INVALID_HANDLE, "cuStreamQuery of no stream");
    return reached(stream, stream->queued, stream->known);
}

API CUresult cuEventCreate(Event **event, unsigned flags) {
    MAY_FAIL;
    Lock lock(machine());
    if (CUresult result = usable()) return result;
    *event = new Event{current(), (flags & 2) == 0, nullptr};
    live_events.insert(*event);
    return SUCCESS;
}

API CUresult cuEventDestroy_v2(Event *event) {
    MAY_FAIL;
    Lock lock(machine());
    if (!live_events.erase(event)) return FAIL(INVALID_HANDLE, "cuEventDestroy of no event");
    delete event;
    return SUCCESS;
}

API CUresult cuEventRecord(Event *event, void *handle) {
    MAY_FAIL;
    Lock lock(machine());
    if (CUresult result = usable()) return result;
    Stream *stream = stream_of(handle);
    if (!stream || !live_events.count(event))
        return FAIL(INVALID_HANDLE, "cuEventRecord of no event or stream");
    // "cuEventRecord: hEvent and hStream must be from the same context."
    if (stream->device != event->device)
        return FAIL(INVALID_HANDLE, "cuEventRecord of an event of device %d on %s", event->device->ordinal,
                    lane_name(stream->lane).c_str());
    auto record = std::make_shared<Record>();
    record->stream = stream;
    record->place = stream->queued + 1;
    enqueue(stream, "recording an event", [record] {
        record->known = record->stream->known;
        record->seconds = now();
        return Progress::Done;
    });
    event->record = record;
    return SUCCESS;
}

// The wait uses the event's record at the time of the call. A later record changes nothing for it.
API CUresult cuStreamWaitEvent(void *handle, Event *event, unsigned) {
    MAY_FAIL;
    Lock lock(machine());
    if (CUresult result = usable()) return result;
    Stream *stream = stream_of(handle);
    if (!stream || !live_events.count(event))
        return FAIL(INVALID_HANDLE, "cuStreamWaitEvent of no event or stream");
    if (auto record = event->record)
        enqueue(stream, "waiting for an event", [stream, record] {
            Progress progress = run(record->stream, record->place);
            if (progress == Progress::Done)
                learn(stream->known, record->stream->lane, record->place, record->known);
            return progress;
        });
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
    MAY_FAIL;
    std::shared_ptr<Record> record;
    if (CUresult result = recorded(event, record)) return result;
    return record ? wait(record->stream, record->place, record.get()) : SUCCESS;
}

API CUresult cuEventQuery(Event *event) {
    MAY_FAIL;
    std::shared_ptr<Record> record;
    if (CUresult result = recorded(event, record)) return result;
    if (!record) return SUCCESS;
    Lock lock(machine());
    return reached(record->stream, record->place, record->known);
}

API CUresult cuEventElapsedTime_v2(float *milliseconds, Event *start, Event *end) {
    MAY_FAIL;
    std::shared_ptr<Record> from, to;
    if (CUresult result = recorded(start, from)) return result;
    if (CUresult result = recorded(end, to)) return result;
    if (start->device != end->device)
        return FAIL(INVALID_HANDLE, "cuEventElapsedTime between events of two devices");
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
    MAY_FAIL;
    Lock lock(machine());
    if (CUresult result = usable()) return result;
    Stream *stream = stream_of(handle);
    if (!stream) return FAIL(INVALID_HANDLE, "cuLaunchHostFunc on no stream");
    enqueue(stream, "a function of the host", [=] { return function(data), Progress::Done; });
    return SUCCESS;
}
