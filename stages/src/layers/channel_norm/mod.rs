//! Norms of the channels of images.

pub(crate) mod batch_norm;
pub(crate) mod cpu;
pub(crate) mod cuda;
pub(crate) mod group_norm;
