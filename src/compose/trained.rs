//! How much of a model is trained.

use super::model;
use super::rules::is_plain;
use crate::config::Config;
use crate::error::Result;

/// The numbers of each unit of the model: all weights, and those that are trained. `None` if a config says
/// nothing of what is trained.
///
/// # Errors
/// As for [`model`](super::model).
pub(super) fn trained(config: &Config) -> Result<Option<Vec<[u64; 2]>>> {
    if is_plain(config) {
        return Ok(None);
    }
    let contents = model(config)?.contents()?;
    let sums = contents.iter().map(|unit| {
        let sum = |[all, trained]: [u64; 2], one: &(String, usize, usize)| {
            [all + one.1 as u64, trained + one.2 as u64]
        };
        unit.parameters.iter().fold([0; 2], sum)
    });
    Ok(Some(sums.collect()))
}

/// The share of the model's weights that is trained.
///
/// # Errors
/// As for [`model`](super::model).
pub(super) fn trained_share(config: &Config) -> Result<f64> {
    Ok(trained(config)?.map_or(1.0, |units| {
        let [all, trained] = [0, 1].map(|which| units.iter().map(|unit| unit[which]).sum::<u64>());
        trained as f64 / all.max(1) as f64
    }))
}
