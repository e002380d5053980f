//! What goes between processes, over any line of bytes: frames, calls of all processes, and farewells.

mod alike;
mod answers;
mod calls;
mod connection;
mod from_process;
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

pub(super) use alike::{Alike, binary};
pub use alike::{compare, introduction};
pub(super) use connection::FarRoute;
pub use from_process::FromProcess;
pub(crate) use kept::{Item, Kept, Label, Stamp};
pub(super) use line::{BUFFER, inlet};
pub use line::{Line, Lines, Numbers, Start};
pub(crate) use others::Others;
pub(super) use part::plain;
pub(crate) use patience::Ending;
pub use peers::Peers;
pub(super) use reader::Deliveries;
pub use status_queries::Aside;
pub use world::{Crew, Gone, World};
pub(crate) use world::{JoinAgain, Size};
