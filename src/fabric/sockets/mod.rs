//! Processes that are connected by sockets, each with each.

mod bootstrap;
mod join;
mod line;
mod near;
#[cfg(target_os = "linux")]
mod shared;
#[cfg(not(target_os = "linux"))]
#[path = "not_shared.rs"]
mod shared;

pub use bootstrap::Membership;
