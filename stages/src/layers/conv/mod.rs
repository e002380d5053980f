//! Convolutions.

pub(crate) mod conv1d;
pub(crate) mod conv2d;
pub(crate) mod cpu;
pub(crate) mod cuda;
pub(crate) mod images;
pub(crate) mod sizes;
pub(crate) mod unfold;
