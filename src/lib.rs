//! Pipewright trains models that are cut into pipeline stages.
//!
//! Each stage lives in an actor with a thread of its own, on a GPU or on CPU cores. Micro-batches go through
//! the stages over links. A schedule says what each rank does, and when. It is checked before the first step:
//! it is complete, and it cannot deadlock. However a model is cut, the trained weights are the same, bit for
//! bit.
//!
//! # Quick start
//!
//! A GPT in two stages, on a text that is part of the program:
//!
//! ```
//! # use std::sync::Arc;
//! # use pipewright::{Pipeline, Result, schedule::Schedule};
//! # use pipewright::data::{Corpus, Windows};
//! # use pipewright::stages::{loss::CrossEntropy, models::Gpt};
//! # fn main() -> Result<()> {
//! let (dim, context) = (32, 32);
//! let gpt = Gpt { vocab: 256, dim, layers: 2, heads: 4, context, dropout: 0.1, tied: true, seed: 1 };
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
//! # Where to look
//!
//! | to | see |
//! | --- | --- |
//! | train step by step, evaluate, save, load | [`Pipeline`] |
//! | train with a run directory, resume, validation, progress | [`run::Run`] |
//! | take ready layers and losses | [`stages::layers`], [`stages::loss`] |
//! | take ready optimizers and models | [`stages::optimizer`], [`stages::models`] |
//! | write a layer, or a whole stage | [`stages::Layer`], [`stages::Stage`] |
//! | read data, or write a source | [`data`], [`data::DataSource`] |
//! | take a schedule by its name | [`schedule::Schedule::named`] |
//! | write a schedule, and have it checked | [`schedule`] |
//! | know what a step will take, before it runs | [`plan`] |
//! | draw a step, planned or measured | [`draw`] |
//! | copy checkpoints to an object store | [`store::Store`], [`run::Run::copy_to`] |
//! | read a checkpoint without a pipeline | [`checkpoint::Checkpoint`] |
//! | train with differential privacy | [`privacy`] |
//! | train in several processes | [`fabric::World`] |
//! | connect processes by another network | [`fabric::line`] |
//! | handle an error by its kind | [`Error`], [`error`] |
//!
//! The guide in `book/` explains all of it with examples.
//!
//! # How it is laid out
//!
//! Below are the packages `pipewright-schedule` ([`schedule`], [`plan`], [`groups`], [`id`], [`checksum`])
//! and `pipewright-stages` ([`stages`]). The modules above are layers, and nothing imports upward. Lowest
//! first: [`mesh`], [`tokenizer`], [`store`] and [`error`]; [`fabric`] and [`data`]; [`draw`] and
//! [`checkpoint`]; the worker; the actor; [`pipeline`]; [`run`]. Above is the package `pipewright-cli`: the
//! command, and its configs.

mod actor;
pub mod checkpoint;
pub mod data;
pub mod draw;
mod ended;
pub mod error;
pub mod fabric;
mod interrupt;
pub mod mesh;
pub mod pipeline;
pub mod pretrained;
pub mod privacy;
pub mod run;
pub mod situation;
pub mod store;
#[doc(hidden)]
pub mod system;
pub mod tokenizer;
#[doc(hidden)]
pub mod whole;
mod worker;

pub use error::{Error, Result};
pub use pipeline::{Cut, Evaluation, Pipeline, PipelineBuilder, Recut, StallWarning, StepReport, SyncMode};
pub use pipewright_schedule::{checksum, groups, id, nearest, plan, schedule};
pub use pipewright_stages as stages;
pub use worker::{ParameterInfo, RankReport, Restart, Site, Staleness};
