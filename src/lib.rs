//! Pipewright: an actor-based pipeline-parallel training engine.

pub mod actor;
pub mod checkpoint;
pub mod cli;
pub mod config;
pub mod data;
mod error;
pub mod id;
pub mod pipeline;
pub mod plan;
pub mod schedule;
pub mod transport;
pub mod worker;

pub use error::{Error, Result};
pub use pipeline::{Evaluation, Pipeline, PipelineBuilder, StepReport};
pub use pipewright_stages as stages;
pub use worker::RankReport;
