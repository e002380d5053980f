//! Matrices whose numbers take few bits: a frozen base under adapters, and models of llama.cpp.

pub(crate) mod codes;
pub(crate) mod decode;
mod encode;
pub(crate) mod kind;
mod matrix;
pub(crate) mod on_gpu;
#[cfg(target_arch = "x86_64")]
mod registers;
#[cfg(target_arch = "x86_64")]
pub(crate) mod wide;

pub use self::kind::Quantisation;
pub use self::matrix::{Quantised, SharedBytes};
