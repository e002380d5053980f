//! The system's allocator, with a count of each thread's allocations.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize};

use super::*;

struct Counting;

/// This many threads can be counted: more than all tests of this program start together.
const THREADS: usize = 1 << 16;

static STARTED: AtomicUsize = AtomicUsize::new(0);
static ALLOCATIONS: [AtomicU64; THREADS] = [const { AtomicU64::new(0) }; THREADS];
static LARGEST: AtomicUsize = AtomicUsize::new(0);
static BYTES: [AtomicI64; THREADS] = [const { AtomicI64::new(0) }; THREADS];

thread_local! {
    static THREAD: Cell<Option<usize>> = const { Cell::new(None) };
}

/// The number of the current thread. Threads get numbers when they first allocate.
pub(crate) fn thread() -> usize {
    THREAD.get().unwrap_or_else(|| {
        let new = STARTED.fetch_add(1, Relaxed).min(THREADS - 1);
        THREAD.set(Some(new));
        new
    })
}

/// How many threads have a number. Panics where threads have no count of their own.
pub(crate) fn started() -> usize {
    let started = STARTED.load(Relaxed);
    assert!(started <= THREADS, "{started} threads have started, and {THREADS} can be counted");
    started
}

/// How often these threads have allocated.
pub(crate) fn allocations(threads: Range<usize>) -> u64 {
    ALLOCATIONS[threads].iter().map(|count| count.load(Relaxed)).sum()
}

/// The bytes that the current thread has allocated and not freed.
pub(crate) fn live_bytes() -> i64 {
    BYTES[thread()].load(Relaxed)
}

/// What is held by a thread since a moment, and by all threads that have started since then. Threads that
/// were there before, and free what they have, do not count.
#[derive(Clone, Copy)]
pub(crate) struct Since {
    caller: usize,
    before: i64,
    first: usize,
}

impl Since {
    /// By the current thread, since now.
    pub(crate) fn now() -> Self {
        Self { caller: thread(), before: live_bytes(), first: started() }
    }

    /// The bytes that were allocated and not freed.
    pub(crate) fn held(self) -> i64 {
        let threads = BYTES[self.first..started()].iter();
        let own = BYTES[self.caller].load(Relaxed) - self.before;
        own + threads.map(|bytes| bytes.load(Relaxed)).sum::<i64>()
    }
}

/// The bytes of the largest allocation of any thread since this was asked for the last time.
pub(crate) fn largest() -> usize {
    LARGEST.swap(0, Relaxed)
}

// SAFETY: every call goes to the system's allocator unchanged, and counting allocates nothing.
#[allow(unsafe_code, reason = "the trait of allocators is unsafe to implement")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS[thread()].fetch_add(1, Relaxed);
        LARGEST.fetch_max(layout.size(), Relaxed);
        BYTES[thread()].fetch_add(layout.size() as i64, Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        BYTES[thread()].fetch_sub(layout.size() as i64, Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;
