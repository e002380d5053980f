//! Processes that are connected by sockets, each with each.

mod bootstrap;
mod join;
mod line;
mod near;

pub use bootstrap::Membership;
