//! A thread's unused memory on a device, and which of it is used next.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Weak};

use crossbeam_queue::ArrayQueue;
use cudarc::driver::result::mem_pool;
use cudarc::driver::sys::CUmemPool_attribute;

use super::driver::{self, Stream, failed};
use super::memory::{Block, Filler};
use crate::error::Result;

/// How many blocks can wait in a thread's queue of returned blocks. One more is freed.
const ON_THE_WAY: usize = 4096;

/// If other streams still use more blocks of one size than this, the next user waits for one of them, and
/// takes no new memory. The host is far ahead of the device, so to it each transfer seems to be under way,
/// and without a limit memory would grow with the number of micro-batches. This many are enough for two
/// activations and two gradients on their way, which is what the planner counts.
const MOST_AWAITED: usize = 4;

/// Who fills a block, and its size in bytes.
pub(super) type Kind = (Filler, usize);

/// The queue through which blocks return to their thread.
pub(super) type Home = ArrayQueue<Arc<Block>>;

/// A thread's unused blocks on a device. Those that transfers or copies fill are kept apart, so that these do
/// not wait for computing, nor computing for them.
#[derive(Debug)]
pub(super) struct Shelf {
    rows: RefCell<BTreeMap<Kind, Row>>,
    home: Arc<Home>,
}

/// Unused blocks of one kind.
#[derive(Debug, Default)]
struct Row {
    /// Those that no other stream used.
    ready: Vec<Arc<Block>>,
    /// Those that another stream used, in the order in which they came back.
    awaited: VecDeque<Arc<Block>>,
}

impl Shelf {
    /// An empty shelf. It tells CUDA's own pool to keep all freed memory, so that steps do not allocate from
    /// the system.
    pub(super) fn new(index: u32) -> Result<Self> {
        let pool = driver::pool(index)?;
        let threshold = CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        let mut most = u64::MAX;
        // SAFETY: the attribute is of this type.
        unsafe { mem_pool::set_attribute(pool, threshold, std::ptr::from_mut(&mut most).cast()) }
            .map_err(failed("setting up the memory pool"))?;
        Ok(Self {
            rows: RefCell::default(),
            home: Arc::new(ArrayQueue::new(ON_THE_WAY)),
        })
    }

    /// The queue through which other threads return blocks.
    pub(super) fn home(&self) -> Weak<Home> {
        Arc::downgrade(&self.home)
    }

    /// A block that its next user need not wait for.
    pub(super) fn ready(&self, kind: Kind) -> Result<Option<Arc<Block>>> {
        self.collect();
        let mut rows = self.rows.borrow_mut();
        let Some(row) = rows.get_mut(&kind) else {
            return Ok(None);
        };
        if let Some(block) = row.ready.pop() {
            return Ok(Some(block));
        }
        match row.awaited.front() {
            Some(oldest) if oldest.is_done()? => Ok(row.awaited.pop_front()),
            _ => Ok(None),
        }
    }

    /// Whether so many blocks are in use by other streams that the next user should wait for one.
    pub(super) fn is_full(&self, kind: Kind) -> bool {
        let rows = self.rows.borrow();
        rows.get(&kind)
            .is_some_and(|row| row.awaited.len() > MOST_AWAITED)
    }

    /// The block that came back first of those that another stream used. The given stream waits for that use.
    pub(super) fn oldest(&self, kind: Kind, stream: &Stream) -> Result<Option<Arc<Block>>> {
        let mut rows = self.rows.borrow_mut();
        let oldest = rows.get_mut(&kind).and_then(|row| row.awaited.pop_front());
        oldest
            .map(|block| block.make_wait(stream).map(|()| block))
            .transpose()
    }

    /// Keeps a block for later.
    pub(super) fn put(&self, block: Arc<Block>) {
        let mut rows = self.rows.borrow_mut();
        let row = rows.entry(block.kind()).or_default();
        match block.is_used_elsewhere() {
            false => row.ready.push(block),
            true => row.awaited.push_back(block),
        }
    }

    /// Frees all unused blocks, in the order of the thread's compute stream.
    pub(super) fn clear(&self) {
        self.collect();
        // Nothing is borrowed while blocks are freed.
        let rows = std::mem::take(&mut *self.rows.borrow_mut());
        drop(rows);
    }

    /// Keeps the returned blocks.
    fn collect(&self) {
        while let Some(block) = self.home.pop() {
            self.put(block);
        }
    }
}
