//! What goes between processes, over any line of bytes: frames, calls of all processes, and farewells.

mod alike;
mod answers;
mod calls;
mod connection;
mod head;
mod keeping;
mod kept;
mod line;
mod numbers;
mod others;
mod part;
mod patience;
mod peers;
mod reader;
mod received;
mod snapshot_sender;
mod status_queries;
mod world;

pub(super) use alike::{binary, other_build, other_program};
pub(super) use connection::FarRoute;
pub(super) use head::{Head, frame_length};
pub(crate) use kept::{Item, Kept, Label, Stamp};
#[cfg(feature = "mpi")]
pub(super) use line::Numbers;
pub(super) use line::{BUFFER, Line, Lines, ReadsFrames, StartsReaders, inlet};
pub(crate) use others::Others;
pub(super) use part::plain;
pub(crate) use patience::Ending;
pub use peers::Peers;
pub(super) use reader::Deliveries;
pub(super) use status_queries::{Answer, Aside};
pub(crate) use world::JoinAgain;
pub use world::World;
