//! Computing on GPUs, for layers, losses and optimizers: our own kernels, compiled when the program starts,
//! and cuBLASLt for matrix products.
//!
//! A call queues work on the rank's compute stream and returns. Functions that block say so.

pub(crate) mod batched_launch;
pub(crate) mod cache;
pub(crate) mod columns;
pub(crate) mod context;
pub(crate) mod driver;
pub(crate) mod elementwise;
pub(crate) mod failure;
pub(crate) mod gpu;
pub(crate) mod hopper;
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
pub(crate) mod streams;
pub(crate) mod weight_stream;

pub use batched_launch::Together;
pub use cache::cache_folder;
pub(crate) use columns::Columns;
pub(crate) use driver::Ptr;
pub(crate) use gpu::{Gpu, check};
pub(crate) use launch::Grid;
pub use library::{FoundLibrary, Library, Version};
pub(crate) use memory::device::Memory;
pub use memory::passage::PASSAGE;
pub(crate) use memory::pinned::Pinned;
pub use pairs::{Pair, host_speed, pairs};
pub use probe::{GpuReport, Report, free_memory, name_and_memory, probe};
pub(crate) use products::product::{Added, Product, Scale, Start};
