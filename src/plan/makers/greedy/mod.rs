//! Lists passes against simulated time (list scheduling): what a rank does next is decided when it is free.
//!
//! A free rank does a backward-input that is ready. Else it does a forward that is ready and fits its memory. Else, while it
//! would idle, it does a backward-weight ([arXiv 2401.10241](https://arxiv.org/abs/2401.10241), section 3.1, decides so too,
//! rank by rank). A [`Rule`] varies this; [`best`] tries several and keeps the best. Two limits shape the result: the memory of
//! a rank, and how many micro-batches a stage has in flight, the lifespan of a building block in
//! [arXiv 2405.15362](https://arxiv.org/abs/2405.15362).
//!
//! It always ends: a forward has to leave room for finishing the micro-batches one after the other, so the oldest of all can
//! always go on.
//!
//! To read in this order: `task.rs` (what is given and what comes of it), `policy.rs` (by which rules), `lister.rs` (one
//! listing), `best.rs` (several), `climb.rs` (small changes of the best).

mod best;
mod climb;
mod lister;
mod policy;
mod task;

pub(crate) use best::best;
pub(crate) use climb::climb;
pub(crate) use policy::{First, Policy, Rule, in_flight, policies};
pub use task::Goal;
pub(crate) use task::{Task, least_memory};
