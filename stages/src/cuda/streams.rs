//! A GPU's streams, and what a thread needs to queue work on them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::cuda::context::{capability, check_capability, most_shared, multiprocessors};
use crate::cuda::driver::{self, Copy, Stream};
use crate::cuda::hopper;
use crate::cuda::memory::block_cache::Shelf;
use crate::cuda::memory::pinned::Staging;
use crate::cuda::module::Kernels;
use crate::cuda::weight_stream::{self, WeightStream};
use crate::error::Result;

/// The streams of a GPU for one thread, with the kernels and the memory that work on them uses.
#[derive(Debug)]
pub(crate) struct Streams {
    index: u32,
    /// The compute stream.
    stream: Arc<Stream>,
    /// The stream for transfers between processes.
    transfers: Stream,
    /// The stream for copies from other devices of this process.
    copies: Stream,
    /// The stream for exchanges between processes.
    exchanges: Stream,
    /// The stream for gradients of weights, if it is wanted.
    weights: Option<WeightStream>,
    kernels: Kernels,
    shelf: Shelf,
    staging: Staging,
    /// How memory of other devices is copied.
    reached: RefCell<BTreeMap<u32, Copy>>,
    /// The most bytes of shared memory that a block may have.
    most_shared: usize,
    multiprocessors: usize,
    uses_wgmma: bool,
}

impl Streams {
    /// New streams in the thread's current context, which is of the GPU with this index.
    pub(crate) fn open(index: u32) -> Result<Self> {
        let capability = capability(index)?;
        check_capability(index, capability)?;
        let uses_wgmma = hopper::is_wanted(index, capability)?;
        let (stream, weights) = match weight_stream::is_wanted()? {
            true => {
                let stream = Arc::new(Stream::preferred()?);
                (Arc::clone(&stream), Some(WeightStream::new(stream)?))
            }
            false => (Arc::new(Stream::new()?), None),
        };
        Ok(Self {
            index,
            shelf: Shelf::new(index, Arc::clone(&stream))?,
            stream,
            transfers: Stream::urgent()?,
            copies: Stream::urgent()?,
            exchanges: Stream::urgent()?,
            weights,
            kernels: Kernels::load(capability)?,
            staging: Staging::default(),
            reached: RefCell::default(),
            most_shared: most_shared(index)?,
            multiprocessors: multiprocessors(index)?,
            uses_wgmma,
        })
    }

    /// The index of the GPU.
    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    /// The compute stream.
    pub(crate) fn stream(&self) -> &Stream {
        &self.stream
    }

    /// The stream for transfers between processes.
    pub(crate) fn transfers(&self) -> &Stream {
        &self.transfers
    }

    /// The stream for copies from other devices of this process.
    pub(crate) fn copies(&self) -> &Stream {
        &self.copies
    }

    /// The stream for exchanges between processes.
    pub(crate) fn exchanges(&self) -> &Stream {
        &self.exchanges
    }

    /// The stream for gradients of weights, if it is wanted. Without it they are on the compute stream.
    pub(crate) fn weight_stream(&self) -> Option<&WeightStream> {
        self.weights.as_ref()
    }

    /// The kernels.
    pub(crate) fn kernels(&self) -> &Kernels {
        &self.kernels
    }

    /// The unused memory.
    pub(crate) fn shelf(&self) -> &Shelf {
        &self.shelf
    }

    /// The most bytes of shared memory that a block may have.
    pub(crate) fn most_shared(&self) -> usize {
        self.most_shared
    }

    /// How many blocks work on a sum that is made in parts, if `each` of them are on a multiprocessor. The
    /// parts are added up in an order that follows from their number, so kinds of GPUs may give other last
    /// bits.
    pub(crate) fn blocks(&self, each: usize) -> usize {
        each * self.multiprocessors
    }

    /// Whether attention's forward multiplies by `wgmma`, where there is such a kernel.
    pub(crate) fn uses_wgmma(&self) -> bool {
        self.uses_wgmma
    }

    /// Host memory for copies to and from the GPU.
    pub(crate) fn staging(&self) -> &Staging {
        &self.staging
    }

    /// How memory of another device is copied to this one. At the first call it opens direct access. If that
    /// fails, copies are correct too; `pairs` says so.
    pub(crate) fn reach(&self, other: u32) -> Copy {
        let mut reached = self.reached.borrow_mut();
        *reached.entry(other).or_insert_with(|| Copy::from(driver::reach(self.index, other)))
    }

    /// Whether all work queued so far is done.
    pub(crate) fn is_idle(&self) -> Result<bool> {
        self.stream.is_idle()
    }

    /// Blocks until all work queued so far is done.
    pub(crate) fn synchronize(&self) -> Result<()> {
        self.stream.synchronize()
    }
}
