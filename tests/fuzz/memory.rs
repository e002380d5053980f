//! The system's allocator, with a count of what is held and of what was asked for, and a limit.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

struct Counting;

/// No reader gets more than this. A block that would need more is refused, which ends the process, unless the
/// reader expects it.
const LIMIT: usize = 2 << 30;

static HELD: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);
static BLOCKS: AtomicUsize = AtomicUsize::new(0);

/// What a reader took, on all threads.
#[derive(Debug)]
pub(crate) struct Taken {
    /// The most bytes that it held at once.
    pub(crate) bytes: usize,
    /// How many blocks it asked for: a measure of its work that does not depend on the machine.
    pub(crate) blocks: usize,
}

/// Runs this, and says what it took.
pub(crate) fn taken<R>(run: impl FnOnce() -> R) -> (R, Taken) {
    let held = HELD.load(Relaxed);
    MOST.store(held, Relaxed);
    BLOCKS.store(0, Relaxed);
    let result = run();
    let bytes = MOST.load(Relaxed).saturating_sub(held);
    let blocks = BLOCKS.load(Relaxed);
    (result, Taken { bytes, blocks })
}

// SAFETY: every call goes to the system's allocator unchanged or is refused, and counting allocates nothing.
#[allow(unsafe_code, reason = "the trait of allocators is unsafe to implement")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let held = HELD.fetch_add(layout.size(), Relaxed).wrapping_add(layout.size());
        if layout.size() > LIMIT || held > LIMIT {
            HELD.fetch_sub(layout.size(), Relaxed);
            return null_mut();
        }
        MOST.fetch_max(held, Relaxed);
        BLOCKS.fetch_add(1, Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;
