//! One rank: it runs its actions over its stages and its transport, and ends each step with the other ranks.

mod build;
mod checkpoint_io;
mod chunk;
mod evaluation;
mod execution;
mod finish;
mod interpreter;
mod meter;
mod parameters;
mod partials;
mod passes;
mod plan;
mod private;
mod progress;
mod recovery;
mod replicas;
mod strategy;
mod team;
mod ties;
mod trace;

pub use build::may_defer_head;
pub(crate) use evaluation::Forwards;
pub(crate) use execution::{NextTokens, StepRequest};
pub(crate) use finish::agreement::{Fault, StepOutcome, StepTotals, outcome_of};
pub(crate) use interpreter::{Trained, Worker};
pub use meter::RankReport;
pub(crate) use parameters::{Built, Tie};
pub use parameters::{ParameterInfo, Site};
pub(crate) use plan::{Duty, MakeLoss, Plan, Seat};
pub(crate) use progress::{Progress, Reading, WaitsFor};
pub use recovery::Restart;
pub(crate) use recovery::{Restarting, Restarts, pause_after};
pub use strategy::Staleness;
pub(crate) use strategy::WINDOW;
pub(crate) use team::outer;
pub(crate) use trace::{Record, timeline};
