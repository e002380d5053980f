//! Windows and whole images that become one number of each channel.

pub(crate) mod cpu;
pub(crate) mod global_average;
pub(crate) mod max_pool;
