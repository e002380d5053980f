//! Computing on GPUs, for layers, losses and optimizers: our own kernels, compiled when the program starts,
//! and cuBLASLt for matrix products.
//!
//! A call queues work on the rank's compute stream and returns. Functions that block say so.

use std::env;
use std::path::PathBuf;

mod algorithms;
mod attention;
mod attention_next;
mod blas;
mod channels;
mod clock;
mod columns;
mod conv;
mod driver;
mod dropout;
mod elementwise;
mod embedding;
mod experts;
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
mod optimizer;
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

pub use attention::FUSED_HEADS;
pub(crate) use attention_next::PastOnGpu;
pub(crate) use blas::{Product, Start};
pub(crate) use channels::{Channels, Groups};
pub(crate) use clock::GpuClock;
pub(crate) use columns::Columns;
pub(crate) use conv::Windows;
pub(crate) use embedding::ByToken;
pub(crate) use experts::ChoiceOnGpu;
pub(crate) use gpu::{Gpu, check};
pub(crate) use head_norm::HeadRows;
pub(crate) use launch::Grid;
pub use library::{Found, Library, Version};
pub(crate) use loss::Logits;
pub(crate) use memory::Memory;
pub(crate) use moved::arrived;
pub(crate) use norm::Rows;
pub use probe::{GpuReport, Report, free_memory, name_and_memory, probe};
pub(crate) use scores::Scores;
pub(crate) use staging::Pinned;
pub(crate) use weights::Weights;

/// The folder for files that are kept between runs: `pipewright` in the user's cache folder. `None` if the
/// user has no such folder.
pub fn cache_folder() -> Option<PathBuf> {
    let cache = env::var_os("XDG_CACHE_HOME").filter(|path| !path.is_empty());
    let cache = cache
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cache")))?;
    Some(cache.join("pipewright"))
}

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
