//! A thread's unused memory on a device, and which of it is used next.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_queue::ArrayQueue;
use cudarc::driver::result::mem_pool;
use cudarc::driver::sys::CUmemPool_attribute;
use parking_lot::Mutex;

use crate::cuda::driver;
use crate::cuda::driver::{Event, Stream, failed};
use crate::cuda::memory::device::{Block, Filler};
use crate::error::Result;

/// How many blocks can wait in a thread's queue of returned blocks. One more is freed.
const ON_THE_WAY: usize = 4096;

/// If other streams still use more blocks of one size than this, the next user waits for one of them, and
/// takes no new memory. The host is far ahead of the device, so to it each transfer seems to be under way,
/// and without a limit memory would grow with the number of micro-batches. This many are enough for two
/// activations and two gradients on their way, which is what the planner counts.
const MOST_AWAITED: usize = 4;

/// Who fills a block, and its size in bytes.
pub(crate) type Kind = (Filler, usize);

/// The queue through which blocks return to their thread.
pub(crate) type Home = ArrayQueue<Arc<Block>>;

/// How long a thread without memory waits for work of another one that used its unused blocks. That work may
/// wait for this thread, so not for ever.
const PATIENCE: Duration = Duration::from_secs(1);
/// The pause between two looks.
const PAUSE: Duration = Duration::from_micros(100);

/// The shelves of all threads.
static ALL: Mutex<Vec<Weak<Blocks>>> = Mutex::new(Vec::new());

/// A thread's unused blocks on a device. Those that transfers or copies fill are kept apart, so that these do
/// not wait for computing, nor computing for them.
#[derive(Debug)]
pub(crate) struct Shelf(Arc<Blocks>);

#[derive(Debug)]
struct Blocks {
    device: u32,
    /// The thread's compute stream.
    stream: Arc<Stream>,
    /// Locked by another thread only when that one has no memory.
    rows: Mutex<Rows>,
    home: Arc<Home>,
}

#[derive(Debug, Default)]
struct Rows {
    by_kind: BTreeMap<Kind, Row>,
    /// How often a block has come back.
    returns: u64,
}

/// Unused blocks of one kind, each with the number of its return.
#[derive(Debug, Default)]
struct Row {
    /// Those that no other stream used, in the order in which they came back.
    ready: Vec<(u64, Arc<Block>)>,
    /// Those that another stream used, in that order too.
    awaited: VecDeque<(u64, Arc<Block>)>,
}

impl Shelf {
    /// An empty shelf of the thread with this compute stream. It tells CUDA's own pool to keep all freed
    /// memory, so that steps do not allocate from the system.
    pub(crate) fn new(device: u32, stream: Arc<Stream>) -> Result<Self> {
        let pool = driver::pool(device)?;
        let threshold = CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        let mut most = u64::MAX;
        // SAFETY: the attribute is of this type.
        unsafe { mem_pool::set_attribute(pool, threshold, std::ptr::from_mut(&mut most).cast()) }
            .map_err(failed("setting up the memory pool"))?;
        let blocks = Arc::new(Blocks {
            device,
            stream,
            rows: Mutex::default(),
            home: Arc::new(ArrayQueue::new(ON_THE_WAY)),
        });
        let mut all = ALL.lock();
        all.retain(|other| other.strong_count() > 0);
        all.push(Arc::downgrade(&blocks));
        Ok(Self(blocks))
    }

    /// The queue through which other threads return blocks.
    pub(crate) fn home(&self) -> Weak<Home> {
        Arc::downgrade(&self.0.home)
    }

    /// A block that its next user need not wait for.
    pub(crate) fn ready(&self, kind: Kind) -> Result<Option<Arc<Block>>> {
        self.0.collect();
        let mut rows = self.0.rows.lock();
        let Some(row) = rows.by_kind.get_mut(&kind) else {
            return Ok(None);
        };
        let next = match row.ready.pop() {
            Some(next) => Some(next),
            None => match row.awaited.front() {
                Some((_, oldest)) if oldest.is_done()? => row.awaited.pop_front(),
                _ => None,
            },
        };
        Ok(next.map(|(_, block)| block))
    }

    /// Whether the next user should wait for a block: more than `MOST_AWAITED` are in use by other streams.
    pub(crate) fn is_full(&self, kind: Kind) -> bool {
        let rows = self.0.rows.lock();
        rows.by_kind
            .get(&kind)
            .is_some_and(|row| row.awaited.len() > MOST_AWAITED)
    }

    /// The block that came back first of those that another stream used. The given stream waits for that use.
    pub(crate) fn oldest(&self, kind: Kind, stream: &Stream) -> Result<Option<Arc<Block>>> {
        let mut rows = self.0.rows.lock();
        let row = rows.by_kind.get_mut(&kind);
        let oldest = row.and_then(|row| row.awaited.pop_front());
        drop(rows);
        oldest
            .map(|(_, block)| block.make_wait(stream).map(|()| block))
            .transpose()
    }

    /// Keeps a block for later.
    pub(crate) fn put(&self, block: Arc<Block>) {
        self.0.put(block);
    }

    /// Frees all unused blocks, in the order of the thread's compute stream.
    pub(crate) fn clear(&self) -> Result<()> {
        drop(self.0.take(self.0.returns()));
        Ok(())
    }

    /// Frees the unused blocks of other threads on this device, in the order of this thread's compute stream.
    /// It waits until the work is done that these have queued so far, or gives up.
    pub(crate) fn clear_others(&self) -> Result<()> {
        let all: Vec<_> = ALL.lock().iter().filter_map(Weak::upgrade).collect();
        let is_other = |other: &&Arc<Blocks>| other.device == self.0.device && !Arc::ptr_eq(other, &self.0);
        all.iter()
            .filter(is_other)
            .try_for_each(|other| self.clear_of(other))
    }

    fn clear_of(&self, other: &Blocks) -> Result<()> {
        // The thread uses its blocks meanwhile. Work with those that come back later may not be done.
        let returns = other.returns();
        if !other.is_done_soon()? {
            return Ok(());
        }
        for block in other.take(returns) {
            match block.is_done() {
                Ok(true) => block.free_by(self.home()),
                _ => other.put(block),
            }
        }
        Ok(())
    }
}

impl Blocks {
    /// How often a block has come back so far.
    fn returns(&self) -> u64 {
        self.collect();
        self.rows.lock().returns
    }

    /// Takes the unused blocks that had come back by the return of number `returns`.
    fn take(&self, returns: u64) -> Vec<Arc<Block>> {
        // Nothing is locked while blocks are freed.
        let mut rows = self.rows.lock();
        let taken = rows.by_kind.values_mut().flat_map(|row| {
            let [ready, awaited] = [
                row.ready.partition_point(|(number, _)| *number <= returns),
                row.awaited.partition_point(|(number, _)| *number <= returns),
            ];
            row.ready.drain(..ready).chain(row.awaited.drain(..awaited))
        });
        taken.map(|(_, block)| block).collect()
    }

    /// Keeps the returned blocks.
    fn collect(&self) {
        while let Some(block) = self.home.pop() {
            self.put(block);
        }
    }

    fn put(&self, block: Arc<Block>) {
        let mut rows = self.rows.lock();
        rows.returns += 1;
        let number = rows.returns;
        let row = rows.by_kind.entry(block.kind()).or_default();
        match block.is_used_elsewhere() {
            false => row.ready.push((number, block)),
            true => row.awaited.push_back((number, block)),
        }
    }

    /// Whether the device is done with all that the thread has queued so far, after a while at most.
    fn is_done_soon(&self) -> Result<bool> {
        let event = Event::new(false)?;
        event.record(&self.stream)?;
        let since = Instant::now();
        while !event.is_done()? {
            if since.elapsed() > PATIENCE {
                return Ok(false);
            }
            thread::sleep(PAUSE);
        }
        Ok(true)
    }
}
