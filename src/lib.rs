//! Pipewright: an actor-based pipeline-parallel training engine.
//!
//! A model is cut into [`stages`], each of which lives in an actor with a thread of its own. Micro-batches ([`data`]) go through
//! the stages over links ([`fabric`]); a checked [`schedule`] says what each rank does, and one interpreter, the worker,
//! does it. [`Pipeline`] is what a training loop calls:
//!
//! ```
//! # use std::sync::Arc;
//! # use pipewright::{Pipeline, Result, schedule::Schedule};
//! # use pipewright::data::{Corpus, Windows};
//! # use pipewright::stages::{loss::CrossEntropy, models::Gpt};
//! # fn main() -> Result<()> {
//! let gpt = Gpt { vocab: 256, dim: 32, layers: 2, heads: 4, context: 32, dropout: 0.1, tied: true, seed: 1 };
//! let corpus = Arc::new(Corpus::built_in());
//! let windows = Windows::drawn(Arc::clone(&corpus), 0..corpus.count(), 4, 32, 1)?;
//! let mut pipeline = Pipeline::builder()
//!     .schedule(Schedule::one_f_one_b(2, 4)?) // 2 ranks, 4 micro-batches
//!     .stages(gpt.model()?.split(2)?)
//!     .loss(CrossEntropy::default())
//!     .data(Arc::new(windows))
//!     .launch()?;
//! println!("{}", pipeline.step()?);
//! # Ok(())
//! # }
//! ```
//!
//! The modules are layers, lowest first: [`id`] and errors; [`schedule`], [`fabric`] and [`data`]; [`plan`] and [`draw`]; the worker and
//! [`checkpoint`]; the actor; [`pipeline`]; [`profile`]; [`config`]; [`compose`]; [`cli`]. Nothing imports upward.

mod actor;
pub mod checkpoint;
pub mod checksum;
pub mod cli;
pub mod compose;
pub mod config;
pub mod data;
pub mod draw;
pub mod error;
pub mod fabric;
pub mod id;
pub mod mesh;
mod nearest;
pub mod pipeline;
pub mod plan;
pub mod profile;
pub mod run;
pub mod schedule;
mod worker;

pub use error::{Error, Result};
pub use pipeline::{Evaluation, Pipeline, PipelineBuilder, StepReport};
pub use pipewright_stages as stages;
pub use worker::{ParameterInfo, RankReport, Site};

#[cfg(doctest)]
mod guide;
