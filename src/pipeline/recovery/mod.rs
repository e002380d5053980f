//! How a run goes on after a process was lost: all join again, and return to snapshots in memory.

mod keeping;
mod rejoin;
mod snapshots;
mod state;

pub(super) use rejoin::launch_or_join;
pub(super) use snapshots::Layout;
pub(super) use state::RejoinState;
pub use state::Rejoined;
pub(crate) use state::{Leaving, Wish};
