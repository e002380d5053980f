//! Processes that are connected by the system's MPI.

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
