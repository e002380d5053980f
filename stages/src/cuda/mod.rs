//! Computing on GPUs, for layers, losses and optimizers: our own kernels, compiled when the program starts,
//! and cuBLASLt for matrix products.
//!
//! A call queues work on the rank's compute stream and returns. Functions that block say so.

pub(crate) mod batched_launch;
pub(crate) mod cache;
pub(crate) mod clock;
pub(crate) mod columns;
pub(crate) mod driver;
pub(crate) mod elementwise;
pub(crate) mod gpu;
pub(crate) mod launch;
pub(crate) mod library;
pub(crate) mod memory;
pub(crate) mod module;
pub mod nvtx;
pub(crate) mod pairs;
pub(crate) mod probe;
pub(crate) mod products;
pub(crate) mod reduce;
pub(crate) mod source;

pub(crate) use batched_launch::Together;
pub use cache::cache_folder;
pub(crate) use clock::GpuClock;
pub(crate) use columns::Columns;
pub(crate) use gpu::{Gpu, check};
pub(crate) use launch::Grid;
pub use library::{FoundLibrary, Library, Version};
pub(crate) use memory::device::Memory;
pub(crate) use memory::staging::Pinned;
pub use pairs::{Pair, host_speed, pairs};
pub use probe::{GpuReport, Report, free_memory, name_and_memory, probe};
pub(crate) use products::blas::{Added, Product, Start};

/// An address on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ptr(pub(crate) u64);

impl Ptr {
    /// No address, for an argument that a kernel does not need.
    pub(crate) const NONE: Self = Self(0);

    /// The address this many bytes further.
    pub(crate) fn offset(self, bytes: usize) -> Self {
        Self(self.0 + bytes as u64)
    }
}
