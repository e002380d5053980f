//! Processes that are connected by sockets, each with each.

mod bootstrap;
mod channel;
mod handshake;
mod join;
mod line;
#[cfg(target_os = "linux")]
mod near;
#[cfg(not(target_os = "linux"))]
#[path = "not_near.rs"]
mod near;
#[cfg(feature = "tls")]
mod tls;
#[cfg(not(feature = "tls"))]
#[path = "not_tls.rs"]
mod tls;

pub use bootstrap::Membership;
pub use handshake::Secret;
