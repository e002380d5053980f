//! Lists passes against simulated time (list scheduling): what a rank does next is decided when it is free.
//!
//! A free rank runs a backward-input that is ready. Else it runs a forward that is ready and fits its memory.
//! Else, while it would idle, it runs a backward-weight. The zero-bubble paper decides in the same way, rank
//! by rank ([arXiv 2401.10241](https://arxiv.org/abs/2401.10241), section 3.1). A [`Rule`] varies this.
//! [`best`] tries several rules and keeps the best. Two limits shape the result: the memory of a rank, and
//! how many micro-batches a stage has in flight. The second is the lifespan of a building block in [arXiv
//! 2405.15362](https://arxiv.org/abs/2405.15362).
//!
//! A listing always ends. A forward has to leave room to finish the micro-batches one after the other, so the
//! oldest one can always go on.
//!
//! Read the files in this order: `task.rs` (the task and its result), `policy.rs` (the rules), `lister.rs`
//! (one listing), `best.rs` (several listings), `climb.rs` (small changes of the best).

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
