//! Computing on GPUs, for layers, losses and optimizers: our own kernels, compiled when the program starts,
//! and cuBLASLt for matrix products.
//!
//! A call queues work on the rank's compute stream and returns. Functions that block say so.

mod algorithms;
mod attention;
mod attention_next;
mod batched_launch;
mod blas;
mod block_cache;
mod cache;
mod channels;
mod choices;
mod clock;
mod columns;
mod conv;
mod driver;
mod dropout;
mod elementwise;
mod embedding;
mod experts;
mod fused;
mod gated;
mod gpu;
mod head_norm;
mod launch;
mod library;
mod loss;
mod memory;
mod module;
mod moved;
pub(crate) mod nccl;
mod norm;
pub(crate) mod nvtx;
mod offload;
mod optimizer;
mod pairs;
mod plan;
mod pools;
mod probe;
mod reduce;
mod rotary;
mod scores;
mod source;
mod staging;
mod trial;
mod weights;

pub(crate) use attention_next::PastOnGpu;
pub(crate) use batched_launch::Together;
pub(crate) use blas::{Added, Product, Start};
pub use cache::cache_folder;
pub(crate) use channels::{Channels, Groups};
pub(crate) use clock::GpuClock;
pub(crate) use columns::Columns;
pub(crate) use conv::Windows;
pub(crate) use embedding::ByToken;
pub(crate) use experts::ChoiceOnGpu;
pub use fused::FUSED_HEADS;
pub(crate) use gpu::{Gpu, check};
pub(crate) use head_norm::HeadRows;
pub(crate) use launch::Grid;
pub use library::{FoundLibrary, Library, Version};
pub(crate) use loss::Logits;
pub(crate) use memory::Memory;
pub(crate) use moved::arrived;
pub(crate) use norm::Rows;
pub use offload::Offloaded;
pub use pairs::{Pair, host_speed, pairs};
pub use probe::{GpuReport, Report, free_memory, name_and_memory, probe};
pub(crate) use scores::Scores;
pub(crate) use staging::Pinned;
pub(crate) use weights::Weights;

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
