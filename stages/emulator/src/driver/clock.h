// What is done before what. Each stream is a lane, whose works are counted from 1. A clock says of each lane
// how many of its works are known to be done. A host thread and a stream each have one: they learn from each
// other where one queues work, waits for an event, or waits for a stream. So two works are ordered if and
// only if the later one's clock has the earlier one, whatever order they ran in this time.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

/// By lane.
using Clock = std::vector<uint64_t>;
/// A clock that others may share. It is replaced, never changed.
using Known = std::shared_ptr<const Clock>;

/// The clock that knows nothing.
Known nothing();
bool knows(const Known &known, size_t lane, uint64_t place);
void learn(Known &known, const Known &others);
/// Learns a place of a lane, with all that the lane knew there.
void learn(Known &known, size_t lane, uint64_t place, const Known &there);

/// What the calling thread knows. A new thread knows what all others know, since one of them has made it.
/// When it ends, all others may know what it knew, since one of them may have waited for it.
Known &host_known();
