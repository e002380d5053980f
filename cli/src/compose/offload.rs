//! What a config's ranks on GPUs have on the host.

use pipewright::stages::Device;

use super::model::sizes;
use super::places;
use super::trained::{Trained, states_of_a_weight, trained};
use crate::config::Config;
use crate::error::Result;
use crate::profile::Measured;
use pipewright::plan::{ModelCosts, Offload};

/// Bytes a second that a GPU copies to its host's page-locked memory, or from there, where nothing says more:
/// about what PCIe 4.0 with 16 lanes reaches.
const COPIED: f64 = 25e9;

/// Bytes of a number of 32 bits.
const F32: f64 = 4.0;

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

/// The setting with which costs were measured whose updates brought the optimizer's state from the host.
pub(super) const STATE_ON_HOST: &str = "optimizer.state_on_host";

/// The costs with the seconds that a byte takes between a GPU and its host, as it was measured, if it was.
/// Updates with state on the host take the time of its copies, unless they were measured with them.
///
/// # Errors
/// When a cost is negative or not a number. When the sizes of the model are impossible.
pub(super) fn with_host(config: &Config, costs: ModelCosts, measured: &Measured) -> Result<ModelCosts> {
    let data = match config.reads_tokens() {
        true => costs.input(),
        false => 0.0,
    };
    let costs = costs.with_host(measured.host.unwrap_or(1.0 / COPIED), data)?;
    let on_host = config.optimizer.state_on_host && config.pipeline.devices.has_gpu();
    Ok(match on_host && !measured.settings.contains_key(STATE_ON_HOST) {
        true => costs.with_state_on_host(&states(config)?)?,
        false => costs,
    })
}

/// The bytes of each layer's optimizer state. A tied head has its table's.
fn states(config: &Config) -> Result<Vec<f64>> {
    if let Some(units) = trained(config)? {
        let bytes = |unit: Trained| (unit.optimizer - unit.tied.optimizer) as f64;
        return Ok(units.into_iter().map(bytes).collect());
    }
    let of_weight = F32 * states_of_a_weight(config);
    let units = sizes(config)?.units;
    Ok(units.iter().map(|unit| of_weight * (unit.weights - unit.tied) as f64).collect())
}
