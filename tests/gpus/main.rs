//! Training on GPUs, or on an emulated one where there is none: it learns what the CPU learns, and the same
//! bits however it is cut.

#[path = "../common/mod.rs"]
mod common;
#[path = "../../stages/tests/emulator/mod.rs"]
mod emulator;

mod profile;
mod refusals;
mod training;
