//! Schedules of pipelines, and what they take before they run. All of it is pure: no file, no clock, no
//! thread.
//!
//! | module | what is in it |
//! | --- | --- |
//! | [`id`], [`mesh`] | the numbers of ranks, stages and micro-batches; where every rank of a run is |
//! | [`groups`] | which micro-batches a replica has, and the order in which gradients are added |
//! | [`schedule`] | actions, placements, the checker (only it makes a schedule), text forms |
//! | [`plan`] | costs, makers of schedules, the simulator, memory, where a model is cut |
//! | [`checksum`], [`nearest`] | checksums of bytes; the word that was probably meant |
//! | [`error`] | what is refused, and why |
//!
//! The package `pipewright` shows these modules, but for `nearest`, under its own name. Programs use them
//! there.

pub mod checksum;
pub mod error;
pub mod groups;
pub mod id;
pub mod mesh;
pub mod nearest;
pub mod plan;
pub mod schedule;

pub use error::{Error, Result};
