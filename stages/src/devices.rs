//! What this machine has for CUDA: libraries, GPUs, and what each GPU can run.

pub use crate::cuda::{
    FUSED_HEADS, Found, GpuReport, Library, Report, Version, cache_folder, free_memory, name_and_memory,
    probe,
};
