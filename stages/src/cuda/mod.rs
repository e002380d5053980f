//! What layers, losses and optimizers do on a GPU: kernels of our own, compiled when the program starts, and cuBLASLt for matrix products.
//!
//! Nothing here blocks but what says so: a call puts work on the rank's compute stream and returns.

mod attention;
mod blas;
mod clock;
mod driver;
mod dropout;
mod elementwise;
mod embedding;
mod gpu;
mod launch;
mod loss;
mod memory;
mod module;
mod moved;
mod norm;
mod optimizer;
mod plan;
mod reduce;
mod scores;
mod staging;
mod weights;

pub(crate) use blas::{Product, Start};
pub(crate) use clock::GpuClock;
pub(crate) use embedding::ByToken;
pub(crate) use gpu::{Gpu, check};
pub(crate) use launch::Grid;
pub(crate) use loss::Logits;
pub(crate) use memory::Memory;
pub(crate) use moved::arrived;
pub(crate) use norm::Rows;
pub(crate) use scores::Scores;
pub(crate) use staging::Pinned;
pub(crate) use weights::Weights;

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
