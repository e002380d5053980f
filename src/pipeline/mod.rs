//! The pipeline: it trains step by step, like a plain training loop.

mod again;
mod alike;
mod async_checkpoint;
mod builder;
mod cores;
mod keeping;
mod launch;
mod metrics;
mod next;
mod not_finite;
mod on_its_way;
mod parts;
mod prepare;
mod rejoin;
mod report;
mod running;
mod save;
mod settle;
mod setup;
mod shapes;
mod sizes;
mod snapshots;
mod stale;
mod sync;
mod ties;
mod transfers;

pub use again::Rejoined;
pub use builder::PipelineBuilder;
pub use cores::cores;
pub(crate) use metrics::validated;
pub use parts::STALL_LIMIT;
pub(crate) use report::score;
pub use report::{Evaluation, StepReport};
pub use running::Pipeline;
pub use sync::SyncMode;

pub use crate::actor::{Look, StallWarning};
