//! Several processes in virtual time, each with one rank: real pipelines, over lines of bytes between them. A
//! process may die at any moment. A new one takes its place, and all return to a snapshot.

mod hub;
mod judge;
mod lines;
mod live;
mod state;
mod story;

pub(crate) use live::run;
pub(crate) use state::{ANEW, FROM_A_SNAPSHOT};
pub(crate) use story::Story;
