//! How a run goes on after a process was lost: all join again, and return to snapshots in memory.

mod again;
mod keeping;
mod rejoin;
mod snapshots;

pub(super) use again::Again;
pub use again::Rejoined;
pub(super) use rejoin::launch_or_join;
