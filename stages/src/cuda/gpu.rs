//! A GPU as one thread uses it.

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::ops::Deref;
use std::rc::Rc;

use crate::cuda::context::enter;
use crate::cuda::memory::device::Memory;
use crate::cuda::memory::offload::Offloads;
use crate::cuda::memory::passage::Passage;
use crate::cuda::products::blas::Blas;
use crate::cuda::streams::Streams;
use crate::device::{Device, Place};
use crate::error::Result;

/// A GPU as one thread uses it. The streams, kernels and memory here belong to the thread. Each rank has one
/// such thread.
#[derive(Debug)]
pub(crate) struct Gpu {
    streams: Streams,
    /// Made when something is offloaded first.
    offloads: OnceCell<Offloads>,
    /// Made when something of the host passes first.
    passage: OnceCell<Passage>,
    /// Made at the first matrix product.
    blas: OnceCell<Blas>,
}

thread_local! {
    static GPUS: RefCell<BTreeMap<u32, Rc<Gpu>>> = const { RefCell::new(BTreeMap::new()) };
}

impl Deref for Gpu {
    type Target = Streams;

    fn deref(&self) -> &Streams {
        &self.streams
    }
}

impl Gpu {
    /// The GPU with this index. Makes it the device that CUDA uses on this thread.
    ///
    /// # Errors
    /// When there is no such GPU, or CUDA is missing or too old. The error says what to do.
    pub(crate) fn of(index: u32) -> Result<Rc<Self>> {
        let known = GPUS.with_borrow(|gpus| gpus.get(&index).cloned());
        enter(index)?;
        if let Some(gpu) = known {
            return Ok(gpu);
        }
        let gpu = Rc::new(Self {
            streams: Streams::open(index)?,
            offloads: OnceCell::new(),
            passage: OnceCell::new(),
            blas: OnceCell::new(),
        });
        GPUS.with_borrow_mut(|gpus| gpus.insert(index, Rc::clone(&gpu)));
        Ok(gpu)
    }

    /// What is needed to offload. Made at the first call.
    ///
    /// # Errors
    /// Whatever the device reports.
    pub(crate) fn offloads(&self) -> Result<&Offloads> {
        if let Some(offloads) = self.offloads.get() {
            return Ok(offloads);
        }
        let made = Offloads::new()?;
        Ok(self.offloads.get_or_init(|| made))
    }

    /// Where numbers of the host pass. Made at the first call.
    ///
    /// # Errors
    /// [`OutOfMemory`](crate::error::OutOfMemory), and whatever the device reports.
    pub(crate) fn passage(&self) -> Result<&Passage> {
        if let Some(passage) = self.passage.get() {
            return Ok(passage);
        }
        let made = Passage::new(&self.streams)?;
        Ok(self.passage.get_or_init(|| made))
    }

    /// cuBLASLt. Made at the first call.
    ///
    /// # Errors
    /// When there is no cuBLASLt, or no memory for its workspace.
    pub(crate) fn blas(&self) -> Result<&Blas> {
        if let Some(blas) = self.blas.get() {
            return Ok(blas);
        }
        let opened = Blas::open(&self.streams)?;
        Ok(self.blas.get_or_init(|| opened))
    }
}

/// Checks that the device exists and computes in this number format.
///
/// # Errors
/// When not. The error says what would work.
pub(crate) fn check(place: Place) -> Result<()> {
    match place.device {
        Device::Cpu => Ok(()),
        Device::Cuda(index) => {
            Gpu::of(index)?;
            Gpu::of(index)?.blas().map(|_| ())
        }
    }
}

impl Memory {
    /// The GPU that it is on, as this thread uses it.
    pub(crate) fn gpu(&self) -> Result<Rc<Gpu>> {
        Gpu::of(self.device())
    }
}
