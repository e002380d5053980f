//! What layers, losses and optimizers do on a GPU: kernels of our own, compiled when the program starts, and cuBLASLt for matrix products.
//!
//! Nothing here blocks but what says so: a call puts work on the rank's compute stream and returns.

mod driver;
mod dropout;
mod elementwise;
mod embedding;
mod gpu;
mod launch;
mod loss;
mod memory;
mod module;
mod norm;
mod optimizer;
mod reduce;
mod staging;

pub(crate) use embedding::ByToken;
pub(crate) use gpu::Gpu;
pub(crate) use launch::{Arg, Grid};
pub(crate) use loss::Logits;
pub(crate) use memory::Memory;
pub(crate) use norm::Rows;
pub(crate) use optimizer::Weights;
pub(crate) use staging::Pinned;

/// An address on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ptr(pub(crate) u64);

impl Ptr {
    /// So many bytes further.
    pub(crate) fn offset(self, bytes: usize) -> Self {
        Self(self.0 + bytes as u64)
    }
}
