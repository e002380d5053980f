//! Checkpoints: a folder of safetensors files by parameter name, with nothing about stages in it.
//!
//! `model.safetensors` holds the weights, `optimizer.safetensors` the optimizer's tensors as
//! `<parameter>.<state>`. `state.json` describes them: the step, the config, the fingerprint of the data, a
//! checksum of every tensor and of both headers, and in its last line a checksum of itself. So every byte of
//! a checkpoint is covered.
//!
//! A checkpoint is written beside its place and renamed into it when it is whole. A folder that holds
//! anything else than a checkpoint is never replaced and never removed.
//!
//! The format has a number. Format 1 had no checksums: such checkpoints are read, and cannot be verified.

mod contents;
mod damage;
mod folder;
mod layout;
mod read;
mod state;
mod verify;
mod write;

pub use folder::{named_step, remove, tidy};
pub use layout::TensorInfo;
pub use read::Checkpoint;
pub use verify::Verified;
pub use write::{Draft, Written};
