//! The pipeline: it trains step by step, like a plain training loop.

mod alike;
mod async_checkpoint;
mod builder;
mod evaluation;
mod launch;
mod metrics;
mod plan;
mod recovery;
mod recut;
mod reference;
mod report;
mod running;
mod save;
mod shapes;
mod spec;
mod stale_steps;
mod step;
mod without_barrier;

pub use builder::PipelineBuilder;
pub use launch::cores;
pub(crate) use metrics::validated;
pub use recovery::Rejoined;
pub(crate) use recovery::{Leaving, Wish};
pub use recut::{Cut, Recut};
pub use reference::ReferenceFound;
pub(crate) use report::score;
pub use report::{Evaluation, StepReport};
pub use running::Pipeline;
pub use spec::{STALL_LIMIT, SyncMode};

pub use crate::actor::{Look, StallWarning};
pub use crate::worker::may_defer_head;
