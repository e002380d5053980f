//! A step with differential privacy.

mod clipping;
mod step;

pub(super) use clipping::Clipping;
