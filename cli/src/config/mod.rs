//! Reads and checks what a person writes: a TOML file, environment variables and `--set`.
//!
//! A later source overrides an earlier one: defaults, then the file, then variables such as
//! `PIPEWRIGHT_MODEL__DIM`, then `--set model.dim=256`. `model.path` decides most of `[model]`.
//! Every key except `data.path` has a default. Unknown
//! keys, values of the wrong type and impossible values are refused. The error names the file and line (or
//! the variable, or `--set`) and the key, and says what to do.
//!
//! Paths in a config are relative to the current directory, as on a command line. They are not relative to
//! the config file.

mod check;
mod data;
mod devices;
mod fabric;
mod key;
mod keys;
mod kinds;
mod launch;
mod memory;
mod model;
mod optimizer;
mod parse;
mod pretrained;
mod read;
mod secret_file;
mod sections;
mod settings;
mod sources;
mod tree;
mod values;
mod variables;

pub(crate) use check::NO_TOKENIZER;
pub use data::{Data, DataKind, PackingBy};
pub use devices::Devices;
pub use fabric::Fabric;
pub use launch::{Launched, Launcher, launched, processes};
pub use memory::Memory;
pub use model::{Base, Model, ModelKind, RopeScalingKind};
pub use optimizer::{Group, LearningRateSchedule, Lora, Optimizer, OptimizerKind};
pub(crate) use parse::environment;
pub use secret_file::checkpoint_key;
pub use sections::{
    Checkpoint, FabricKind, Launch, Metrics, Objective, Pipeline, Privacy, ReferenceBy, ReplanBy, SyncKind,
    Train,
};
pub use settings::Config;
pub use values::{Auto, Balanced, Partition, Paths, RecomputeBy, Sizes, WarnOfStall};
