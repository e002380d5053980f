//! What a config's ranks offload to the host.

use pipewright::stages::Device;

use super::places;
use crate::config::Config;
use crate::error::Result;
use pipewright::plan::{ModelCosts, Offload};

/// Bytes a second that a GPU copies to its host's page-locked memory, or from there, where nothing says more:
/// about what PCIe 4.0 with 16 lanes reaches.
const COPIED: f64 = 25e9;

/// How the ranks of a pipeline offload activations, if the config says so.
///
/// # Errors
/// When no rank is on a GPU. As for [`places`] too.
pub fn offload(config: &Config, ranks: u32) -> Result<Option<Offload>> {
    let Some(most) = config.pipeline.offload else {
        return Ok(None);
    };
    let places = places(config, ranks)?;
    let ranks: Vec<bool> = places.iter().map(|place| place.device != Device::Cpu).collect();
    config.require(
        ranks.contains(&true),
        "pipeline.offload",
        || "all ranks are on the CPU, and only GPUs offload: remove it, or name GPUs in pipeline.devices",
    )?;
    let most = most.bytes();
    Ok(Some(Offload { ranks, most }))
}

/// The costs with the seconds that a byte takes between a GPU and its host: `byte`, if that is known.
///
/// # Errors
/// When that is negative or not a number.
pub(super) fn with_host(config: &Config, costs: ModelCosts, byte: Option<f64>) -> Result<ModelCosts> {
    let data = match config.reads_tokens() {
        true => costs.input(),
        false => 0.0,
    };
    Ok(costs.with_host(byte.unwrap_or(1.0 / COPIED), data)?)
}
