//! Checkpoints: a folder of safetensors files by parameter name, with nothing about stages in it.
//!
//! `model.safetensors` holds the weights, `optimizer.safetensors` the optimizer's tensors as `<parameter>.<state>`, `state.json`
//! the step and the config. A checkpoint is written beside its place and renamed into it when whole.

mod read;
mod write;

pub use read::Checkpoint;
pub use write::{Draft, remove};

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::worker::ParameterInfo;

const FORMAT: u32 = 1;
const MODEL: &str = "model.safetensors";
const OPTIMIZER: &str = "optimizer.safetensors";
const STATE: &str = "state.json";
/// Where a checkpoint waits while another is put in its place.
const ASIDE: &str = "old";

/// What `state.json` holds.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct State {
    format: u32,
    /// Optimizer steps done.
    step: u64,
    /// The config of the run that saved it.
    config: String,
}

/// A tensor of a checkpoint: its name and dimensions.
type Named = (String, Vec<usize>);

/// The tensors of a checkpoint's two files for these parameters, each in name order.
fn tensors(parameters: &[ParameterInfo], states: &[&str]) -> (Vec<Named>, Vec<Named>) {
    let mut model: Vec<Named> = parameters
        .iter()
        .map(|info| (info.name.clone(), info.dims.clone()))
        .collect();
    model.sort();
    model.dedup();
    let state = |(name, dims): &Named| {
        let dims = dims.clone();
        let name = name.clone();
        states
            .iter()
            .map(move |state| (state_name(&name, state), dims.clone()))
            .collect::<Vec<_>>()
    };
    let optimizer = model.iter().flat_map(state).collect();
    (model, optimizer)
}

fn state_name(parameter: &str, state: &str) -> String {
    format!("{parameter}.{state}")
}

/// A hidden sibling of a checkpoint's folder.
fn beside(place: &Path, suffix: &str) -> PathBuf {
    let name = place.file_name().unwrap_or_default().to_string_lossy();
    place.with_file_name(format!(".{name}.{suffix}"))
}
