//! Processes that are connected by the system's MPI.

mod alike;
mod join;
mod library;
mod link;
mod receiver;
mod watcher;

pub use join::MpiMembership;
