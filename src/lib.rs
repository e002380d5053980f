//! Pipewright: an actor-based pipeline-parallel training engine.

pub mod cli;
mod error;
pub mod id;
pub mod plan;
pub mod schedule;

pub use error::{Error, Result};
pub use pipewright_stages as stages;
