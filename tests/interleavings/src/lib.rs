//! What threads share, with every order in which they can do what they do: the files of the engine
//! themselves, under `loom`.
//!
//! * [`slots`]: memory that processes share (`src/fabric/sockets/near/slots.rs`), also with every value that
//!   the memory model lets a thread see.
//! * [`fabric`]: inboxes, channels and ends of ranks (`src/fabric/`): messages against notes of stop, later
//!   attempts, full inboxes, sleep.
//! * [`pool`]: memory that comes home to the thread that made it (`stages/src/pool/home.rs`), also while
//!   threads end.
//!
//! `loom` cannot look into the queues of `crossbeam`, nor into `Arc`. So [`queues`] and [`counted`] stand in
//! for them. The stand-in of a queue is one lock, so its own calls happen one after the other, as the calls
//! of `crossbeam` promise to appear. What is shown is that the engine uses such queues rightly, in all orders
//! in which a thread of [`fabric`] loses its turn two or three times. Not shown: that `crossbeam` keeps its
//! promises; and the memory model around queues and counts, since a lock orders more than a queue has to.
//! `scripts/miri.sh` and `scripts/tsan.sh` run the real ones. A rank that waits awake is not here either,
//! because there is no time: all wait asleep.
#![cfg(test)]

// So the files of the engine find the stand-ins under the names of the crates.
extern crate self as crossbeam_channel;
extern crate self as pipewright_stages;

mod counted;
mod engine;
mod fabric;
mod pool;
mod queues;
mod slots;

use engine::{DType, Shape};
pub(crate) use engine::{error, id};
pub use queues::{Receiver, Sender, TrySendError, bounded, never, unbounded};
