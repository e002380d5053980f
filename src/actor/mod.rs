//! The actor that gives a worker its threads, its cores and its mailbox: the only user of actix.
//!
//! Messages are for control: they carry commands, settings and numbers, never a tensor.

mod board;
mod caller;
mod inquiry;
mod job;
mod ranks;
mod runtime;
mod stage_actor;
mod told;
mod typical_wait;
mod watch;
mod watcher;

pub(crate) use job::Job;
pub(crate) use ranks::Ranks;
pub(crate) use runtime::Asked;
pub use typical_wait::StallWarning;
pub use watcher::Look;
pub(crate) use watcher::{OnStall, StallRules};
