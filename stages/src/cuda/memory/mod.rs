//! Memory of devices, and host memory that devices reach.

pub(crate) mod block_cache;
pub(crate) mod device;
pub(crate) mod offload;
pub(crate) mod staging;
