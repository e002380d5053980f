//! How to write lines: what carries bytes between two processes, such as sockets, MPI, or RDMA.
//!
//! Frames, calls of all processes and farewells are the engine's. A fabric between processes only moves
//! bytes, in order, between each two of them. The package `pipewright-mpi` is written by this module, and so
//! are the engine's own sockets. To write another one:
//!
//! 1. Connect the processes. See by [`introduction`] and [`compare`] that all are alike.
//! 2. Implement [`Line`], the sending end of a line to one process. Four of its functions are needed. Three
//!    are to send and to end: [`Line::send`], [`Line::limit`] and [`Line::close`]. [`Line::say`] carries the
//!    words of [`Aside`]: by them processes ask each other what they do.
//! 3. Give the bytes that come to [`FromProcess`], one for each other process. [`Lines::start`] is given
//!    them.
//! 4. Give [`World::by_lines`](super::World::by_lines) the lines. The rest is as with sockets.
//!
//! **Without copies.** A line with [`Line::posts`] is given the memory of large wires and blocks, as
//! [`Numbers`], and keeps it until they have gone. A line that knows how long the next message is asks
//! [`FromProcess::room`] for memory: for the numbers of a wire, that is where they stay.
//!
//! **Where nothing wakes a thread.** MPI has to be asked again and again whether something has come. A
//! [`Pause`] says how, and by a [`Feed`] a rank that waits does it itself.

pub use super::feed::Feed;
pub use super::pause::Pause;
pub use super::processes::{Aside, FromProcess, Line, Lines, Numbers, Start, compare, introduction};
