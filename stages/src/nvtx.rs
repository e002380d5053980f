//! Ranges of time for NVIDIA's profilers.

pub use crate::cuda::nvtx::Range;
