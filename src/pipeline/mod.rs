//! What the user calls: a pipeline that trains step by step, as a plain training loop would.

mod alike;
mod builder;
mod hash;
mod launch;
mod links;
mod metrics;
mod parts;
mod report;
mod running;
mod save;
mod setup;
mod shapes;
mod ties;

pub use builder::PipelineBuilder;
pub(crate) use launch::cores;
pub use report::{Evaluation, StepReport};
pub use running::Pipeline;
