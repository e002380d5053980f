//! Processes that the system's MPI connects.
//!
//! ```toml
//! pipewright-mpi = { version = "0.1", features = ["mpi"] }
//! ```
//!
//! `MpiMembership::join` gives the [`World`](pipewright::fabric::World) of a process that `mpirun` or another
//! launcher of MPI has started. Without the feature `mpi` this package is empty.

#[cfg(feature = "mpi")]
mod lines;

#[cfg(feature = "mpi")]
pub use lines::MpiMembership;
