//! Pipewright: an actor-based pipeline-parallel training engine.

pub mod config;
pub mod data;
mod error;
pub mod id;

pub use error::{Error, Result};
pub use pipewright_stages as stages;
