//! The actor that gives a worker its threads, its cores and its mailbox: the only user of actix.
//!
//! Messages are for control: they carry commands, settings and numbers, never a tensor.

mod messages;
mod ranks;
mod runtime;
mod stage_actor;
mod watch;

pub(crate) use messages::{
    Build, CheckLoss, Evaluate, Hash, Next, OutputShape, Read, Search, Settle, Tied, Train, Verify, Write,
};
pub(crate) use ranks::Ranks;
