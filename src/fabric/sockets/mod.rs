//! Ranks of several processes. Each process is connected with each by sockets.

mod bootstrap;
mod calls;
mod connection;
mod head;
mod numbers;
mod part;
mod patience;
mod peers;
mod reader;
mod received;
mod text;
mod world;

pub(super) use connection::SocketRoute;
pub use peers::Peers;
pub(super) use reader::Deliveries;
pub use world::{Membership, World};
