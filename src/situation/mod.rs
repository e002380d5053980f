//! What all ranks of a run do at one moment, and who waits for whom.
//!
//! A [`Situation`] is made of what each process tells of itself. [`Situation::roots`] finds those who hold
//! the others up. A [`Stall`] is what a pipeline tells when nothing moves any more.

mod process;
mod rank;
mod roots;
mod stall;
mod whole;
mod words;

pub use process::{Contact, Part, ProcessState, Program};
pub use rank::{Awaited, Doing, RankState, Waits};
pub use roots::Root;
pub use stall::Stall;
pub use whole::Situation;
