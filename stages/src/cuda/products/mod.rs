//! Matrix products by cuBLASLt.

pub(crate) mod algorithms;
pub(crate) mod blas;
pub(crate) mod choices;
pub(crate) mod plan;
pub(crate) mod trial;
