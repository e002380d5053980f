//! Blocks of device memory, a thread's unused ones, and which of them is used next.
//!
//! A block belongs to the thread that allocated it, and returns there from wherever it is dropped. If only
//! that thread used the block, the next use needs no wait: the device does the thread's work in order. If
//! another stream used the block, an event marks the end of that use, and the stream of the next user waits
//! for the event. Blocks without such a wait are used first, so that computing does not wait for a transfer
//! as long as there is other memory.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_queue::ArrayQueue;
use cudarc::driver::result::mem_pool;
use cudarc::driver::sys::CUmemPool_attribute;
use parking_lot::Mutex;

use crate::cuda::driver;
use crate::cuda::driver::{Event, Ptr, Stream};
use crate::cuda::failure::failed;
use crate::error::Result;
use crate::pool::Sizes;

/// How many blocks can wait in a thread's queue of returned blocks. One more is freed.
const ON_THE_WAY: usize = 4096;

/// If other streams still use more blocks of one size than this, the next user waits for one of them, and
/// takes no new memory. The host is far ahead of the device, so to it each transfer seems to be under way,
/// and without a limit memory would grow with the number of micro-batches. This many are enough for two
/// activations and two gradients on their way, which is what the planner counts.
const MOST_AWAITED: usize = 4;

/// The stream that fills a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Filler {
    /// The compute stream.
    Compute,
    /// The stream for transfers between processes.
    Transfers,
    /// The stream for copies from other devices.
    Copies,
}

/// What fills a block, and its size in bytes.
pub(crate) type Kind = (Filler, usize);

/// The queue through which blocks return to their thread.
pub(crate) type Home = ArrayQueue<Arc<Block>>;

/// Some device memory.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) at: Ptr,
    pub(crate) bytes: usize,
    pub(crate) device: u32,
    pub(crate) filler: Filler,
    /// How many values share it. The count of the `Arc` does not say who is the last one to give it up.
    pub(super) owners: AtomicUsize,
    /// The last work that other streams must wait for.
    pub(crate) event: Arc<Event>,
    /// Whether the next user must wait for the event. Locked while the event is recorded.
    used_elsewhere: Mutex<bool>,
    /// The ends of copies to other devices, for which nobody on this device has waited.
    copied: Mutex<Vec<Arc<Event>>>,
    pub(crate) home: Weak<Home>,
}

/// How long a thread without memory waits for work of another one that used its unused blocks. That work may
/// wait for this thread, so not for ever.
const PATIENCE: Duration = Duration::from_secs(1);
/// The pause between two looks.
const PAUSE: Duration = Duration::from_micros(100);

/// The shelves of all threads.
static ALL: Mutex<Vec<Weak<Blocks>>> = Mutex::new(Vec::new());

thread_local! {
    static OWN: RefCell<BTreeMap<u32, Shelf>> = const { RefCell::new(BTreeMap::new()) };
}

/// A thread's unused blocks on a device. Those that transfers or copies fill are kept apart, so that these do
/// not wait for computing, nor computing for them.
#[derive(Clone, Debug)]
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
    /// In bytes.
    sizes: Sizes,
}

impl Rows {
    /// Counts a block that is in use from now on.
    fn taken(&mut self, block: Option<(u64, Arc<Block>)>) -> Option<Arc<Block>> {
        let (_, block) = block?;
        self.sizes.taken(block.bytes);
        Some(block)
    }
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
    /// An empty shelf of this thread, with its compute stream. It tells CUDA's own pool to keep all freed
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
        let shelf = Self(blocks);
        OWN.with_borrow_mut(|own| own.insert(device, shelf.clone()));
        Ok(shelf)
    }

    /// This thread's shelf of a device, if the thread already uses that.
    pub(crate) fn known(device: u32) -> Option<Self> {
        // While a thread ends, this list may be gone already.
        OWN.try_with(|own| own.try_borrow().ok()?.get(&device).cloned()).ok().flatten()
    }

    /// The thread's compute stream.
    pub(crate) fn stream(&self) -> &Stream {
        &self.0.stream
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
        Ok(rows.taken(next))
    }

    /// Frees all unused blocks if a new one of this size would be too much: see [`Sizes`].
    pub(crate) fn make_room(&self, bytes: usize) -> Result<()> {
        let is_too_much = self.0.rows.lock().sizes.would_be_too_much(bytes);
        if is_too_much { self.clear() } else { Ok(()) }
    }

    /// Whether the next user should wait for a block: more than `MOST_AWAITED` are in use by other streams.
    pub(crate) fn is_full(&self, kind: Kind) -> bool {
        let rows = self.0.rows.lock();
        rows.by_kind.get(&kind).is_some_and(|row| row.awaited.len() > MOST_AWAITED)
    }

    /// The block that came back first of those that another stream used. The given stream waits for that use.
    pub(crate) fn oldest(&self, kind: Kind, stream: &Stream) -> Result<Option<Arc<Block>>> {
        let mut rows = self.0.rows.lock();
        let row = rows.by_kind.get_mut(&kind);
        let oldest = row.and_then(|row| row.awaited.pop_front());
        let oldest = rows.taken(oldest);
        drop(rows);
        oldest.map(|block| block.make_wait(stream).map(|()| block)).transpose()
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
        all.iter().filter(is_other).try_for_each(|other| self.clear_of(other))
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
                _ => {
                    other.rows.lock().sizes.made(block.bytes);
                    other.put(block);
                }
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
        let taken: Vec<_> = taken.map(|(_, block)| block).collect();
        taken.iter().for_each(|block| rows.sizes.freed(block.bytes));
        taken
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
        rows.sizes.put(block.bytes);
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

impl Block {
    /// A block of this memory, which was just allocated.
    pub(crate) fn new(at: Ptr, (filler, bytes): Kind, shelf: &Shelf) -> Result<Arc<Self>> {
        let device = shelf.0.device;
        let event = Event::new(false).inspect_err(|_| {
            // SAFETY: the memory was just allocated, and nobody has used it.
            unsafe { driver::free(at, device) };
        })?;
        shelf.0.rows.lock().sizes.made(bytes);
        Ok(Arc::new(Self {
            at,
            bytes,
            device,
            filler,
            owners: AtomicUsize::new(0),
            event: Arc::new(event),
            used_elsewhere: Mutex::new(false),
            copied: Mutex::default(),
            home: shelf.home(),
        }))
    }

    /// One of its owners gives it up. Whether that was the last one, who returns it to its thread.
    pub(super) fn give_up(&self) -> bool {
        self.owners.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// What fills it, and its size.
    pub(crate) fn kind(&self) -> Kind {
        (self.filler, self.bytes)
    }

    /// It is copied to another device until this event. Only its own thread may forget that again.
    pub(crate) fn copied_until(&self, event: &Arc<Event>) {
        let mut copied = self.copied.lock();
        if !copied.iter().any(|known| Arc::ptr_eq(known, event)) {
            copied.push(Arc::clone(event));
        }
    }

    /// Whether its next user may have to wait for another stream.
    pub(crate) fn is_used_elsewhere(&self) -> bool {
        *self.used_elsewhere.lock() || !self.copied.lock().is_empty()
    }

    /// Whether no other stream uses it any more.
    pub(crate) fn is_done(&self) -> Result<bool> {
        let mut copied = self.copied.lock();
        forget_done(&mut copied)?;
        if !copied.is_empty() {
            return Ok(false);
        }
        let mut used_elsewhere = self.used_elsewhere.lock();
        *used_elsewhere = *used_elsewhere && !self.event.is_done()?;
        Ok(!*used_elsewhere)
    }

    /// Makes later work on the stream wait until no other stream uses it.
    pub(crate) fn make_wait(&self, stream: &Stream) -> Result<()> {
        for event in self.copied.lock().drain(..) {
            stream.wait(&event)?;
        }
        match std::mem::take(&mut *self.used_elsewhere.lock()) {
            true => stream.wait(&self.event),
            false => Ok(()),
        }
    }

    /// Frees it, in the order of the compute stream of this thread, to which this queue belongs. The work of
    /// its own thread must be done, and nobody may use it.
    pub(crate) fn free_by(self: Arc<Self>, home: Weak<Home>) {
        if let Some(mut block) = Arc::into_inner(self) {
            block.home = home;
        }
    }

    /// Whether it belongs to this shelf's thread.
    pub(crate) fn is_of(&self, shelf: &Shelf) -> bool {
        self.home.ptr_eq(&shelf.home())
    }

    /// Records the event after all work on the stream so far. The event still covers the earlier use
    /// elsewhere, or the transfer, that it stood for.
    pub(crate) fn record(&self, stream: &Stream, use_elsewhere: bool) -> Result<()> {
        let mut used_elsewhere = self.used_elsewhere.lock();
        if *used_elsewhere || self.filler != Filler::Compute {
            stream.wait(&self.event)?;
        }
        self.event.record(stream)?;
        *used_elsewhere |= use_elsewhere;
        Ok(())
    }
}

/// Leaves out the events that the device has reached.
fn forget_done(events: &mut Vec<Arc<Event>>) -> Result<()> {
    let mut failed = Ok(());
    events.retain(|event| match event.is_done() {
        Ok(is_done) => !is_done,
        Err(error) => {
            failed = Err(error);
            true
        }
    });
    failed
}

impl Drop for Block {
    fn drop(&mut self) {
        let shelf = Shelf::known(self.device).filter(|shelf| self.is_of(shelf));
        let copied = std::mem::take(self.copied.get_mut());
        let in_order = shelf.and_then(|shelf| {
            let stream = shelf.stream();
            stream.wait(&self.event).ok()?;
            for event in &copied {
                stream.wait(event).ok()?;
            }
            // SAFETY: the memory was allocated for this block, which has no other owner any more.
            unsafe { driver::free_in_order(self.at, stream) }.ok()
        });
        if in_order.is_none() {
            // Freeing waits for this device only. A wait may fail because of earlier work. If it fails again,
            // the other device has failed: the memory stays allocated, since that one may still read it.
            let wait = |event: &Arc<Event>| event.synchronize().or_else(|_| event.synchronize());
            if copied.iter().try_for_each(wait).is_ok() {
                // SAFETY: as above.
                unsafe { driver::free(self.at, self.device) };
            }
        }
    }
}
