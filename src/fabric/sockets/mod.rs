//! Processes that are connected by sockets, each with each.

mod bootstrap;
mod channel;
mod handshake;
mod join;
mod line;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(not(target_os = "linux"))]
#[path = "not_linux.rs"]
mod linux;
mod near;
#[cfg(target_os = "linux")]
mod shared;
#[cfg(not(target_os = "linux"))]
#[path = "not_shared.rs"]
mod shared;
#[cfg(target_os = "linux")]
mod slots;
#[cfg(feature = "tls")]
mod tls;
#[cfg(not(feature = "tls"))]
#[path = "not_tls.rs"]
mod tls;

pub use bootstrap::Membership;
pub use handshake::Secret;
