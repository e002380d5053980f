//! What layers, losses and optimizers do on a GPU: kernels of our own, compiled when the program starts, and cuBLASLt for matrix products.
//!
//! Nothing here blocks but what says so: a call puts work on the rank's compute stream and returns.

use std::env;
use std::path::PathBuf;

mod attention;
mod blas;
mod clock;
mod driver;
mod dropout;
mod elementwise;
mod embedding;
mod gpu;
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
mod probe;
mod reduce;
mod scores;
mod source;
mod staging;
mod weights;

pub use attention::FUSED_HEADS;
pub(crate) use blas::{Product, Start};
pub(crate) use clock::GpuClock;
pub(crate) use embedding::ByToken;
pub(crate) use gpu::{Gpu, check};
pub(crate) use launch::Grid;
pub use library::{Found, Library, Version};
pub(crate) use loss::Logits;
pub(crate) use memory::Memory;
pub(crate) use moved::arrived;
pub(crate) use norm::Rows;
pub use probe::{GpuReport, Report, name_and_memory, probe};
pub(crate) use scores::Scores;
pub(crate) use staging::Pinned;
pub(crate) use weights::Weights;

/// The folder of what is made once and kept between runs: `pipewright` in the user's cache. None where there is no such place.
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
    /// No address: what an argument is that a kernel does without.
    pub(crate) const NONE: Self = Self(0);

    /// So many bytes further.
    pub(crate) fn offset(self, bytes: usize) -> Self {
        Self(self.0 + bytes as u64)
    }
}
