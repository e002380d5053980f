//! What of CUDA is on this machine: its libraries, and the GPUs with what runs on them.

pub use crate::cuda::{
    FUSED_HEADS, Found, GpuReport, Library, Report, Version, cache_folder, name_and_memory, probe,
};
