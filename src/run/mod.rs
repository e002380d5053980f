//! The training loop: steps, validations, checkpoints, and a directory that a run can be resumed from.
//!
//! A [`Run`] describes what to do, and [`Run::train`] does it, with a [`Pipeline`](crate::Pipeline) of any
//! stages. `pipewright train` uses the same loop.
//!
//! ```
//! # use std::sync::Arc;
//! # use pipewright::{Pipeline, Result, schedule::Schedule};
//! # use pipewright::data::{Corpus, Windows};
//! # use pipewright::stages::{loss::CrossEntropy, models::Gpt};
//! use pipewright::run::{Event, Next, Progress, Resume, Run, Validation};
//!
//! # fn main() -> Result<()> {
//! # let folder = tempfile::tempdir().unwrap();
//! # let path = folder.path().join("runs/small");
//! # let (dim, context) = (16, 16);
//! # let gpt = Gpt { vocab: 256, dim, layers: 2, heads: 2, context, dropout: 0.1, tied: true, seed: 1 };
//! # let corpus = Arc::new(Corpus::text(&["src/run".into()])?);
//! # let (all, cut) = (corpus.count(), corpus.count() - 1000);
//! # let training = Windows::drawn(Arc::clone(&corpus), 0..cut, 2, 16, 1)?;
//! # let validation = Arc::new(Windows::even(Arc::clone(&corpus), cut..all, 2, 16, 4)?);
//! let mut pipeline = Pipeline::builder()
//!     .schedule(Schedule::one_f_one_b(2, 4)?)
//!     .stages(gpt.model()?.split(2)?)
//!     .loss(CrossEntropy::default())
//!     .data(Arc::new(training))
//!     .launch()?;
//! let outcome = Run::new(&path)
//!     .steps(20)
//!     .resume(Resume::IfThere)
//!     .validate(Validation::new(validation).micro_batches(4).every(10))
//!     .save_every(10)
//!     .loss_unit("nats", "token")
//!     .progress(Progress::default())
//!     .on(|event| match event {
//!         Event::Validation { evaluation, .. } if evaluation.loss < 1.0 => Next::Stop,
//!         _ => Next::Continue,
//!     })
//!     .train(&mut pipeline)?;
//! assert_eq!(outcome.steps, 20);
//! # Ok(())
//! # }
//! ```
//!
//! [`RunDir`] lists the files in a run's directory. Only one process at a time trains there: it holds a lock,
//! which the system releases when the process ends, for whatever reason. With several processes, the first
//! one holds the lock and writes the files. All of them call [`Run::train`] in the same way.
//!
//! A run prints nothing and handles no signals unless you ask for it: see [`Run::progress`] and
//! [`Interrupt::on_signals`].

mod bar;
mod begin;
mod choice;
mod copying;
mod directory;
mod event;
mod forecast;
mod generator;
mod listeners;
mod progress;
mod rejoin;
mod rejoining;
mod replanning;
mod samples;
mod save;
mod saving;
mod session;
mod settings;
mod stalls;
mod validation;

pub use choice::Choice;
pub use directory::claim::Resume;
pub use directory::cut::{Change, NOT_CHANGED, NewCut, Reason};
pub use directory::folder::{About, RunDir};
pub use event::{Ended, Event, Failed, GoesOnFrom, LostProcess, Next, Outcome, Return, Task, Warning};
pub use forecast::{Forecast, ForecastReport, StepTime};
pub use generator::Generator;
pub use progress::Progress;
pub use replanning::Replan;
pub use samples::{Sample, Samples};
pub use session::Session;
pub use settings::Run;
pub use validation::{Best, Validation, ValidationSource};

pub use crate::interrupt::{Interrupt, before_ranks, explain_on_signal};
pub use directory::files::WholeLines;
pub use directory::history::HistoryEntry;
pub use directory::metrics::MetricsLine;
pub use directory::picture::LossUnit;
pub use directory::trace::title;
