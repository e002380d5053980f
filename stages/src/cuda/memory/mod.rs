//! Memory of devices, and host memory that devices reach.

pub(crate) mod allocate;
pub(crate) mod block_cache;
pub(crate) mod copies;
pub(crate) mod device;
pub(crate) mod offload;
pub(crate) mod passage;
pub(crate) mod pinned;
