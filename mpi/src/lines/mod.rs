//! Lines of messages of MPI, and the thread that receives them.

mod alike;
mod incoming;
mod join;
mod library;
mod link;
mod messages;
mod posts;
mod receiver;
mod watcher;

pub use join::MpiMembership;
