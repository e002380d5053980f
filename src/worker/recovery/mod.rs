//! A rank that fails in a step is built again, and repeats what it has lost.

mod restart;
mod restarting;
mod snapshot;

pub use restart::Restart;
pub(crate) use restart::{Restarts, pause_after};
pub(crate) use restarting::Restarting;
