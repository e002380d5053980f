//! Which numbers of replicas and ranks are tried.

use crate::Result;
use crate::compose;
use crate::config::Config;
use crate::error::CommandError;

/// All numbers of replicas with the numbers of their ranks that use all of these devices.
pub(super) fn of_devices(devices: u32, config: &Config) -> Result<Vec<(u32, u32)>> {
    let layers = layers(config)?;
    let ranks = (1..=devices.min(layers)).filter(|&ranks| devices.is_multiple_of(ranks));
    Ok(ranks.map(|ranks| (devices / ranks, ranks)).collect())
}

/// These numbers of replicas, each with these numbers of ranks. If none are given, those of the config, and
/// what the machine has.
pub(super) fn of(replicas: &[u32], ranks: &[u32], config: &Config) -> Result<Vec<(u32, u32)>> {
    let mut replicas = replicas.to_vec();
    if replicas.is_empty() {
        replicas.push(config.pipeline.replicas);
    }
    replicas.sort_unstable();
    replicas.dedup();
    let ranks = of_pipeline(ranks, config)?;
    let pairs = replicas
        .iter()
        .flat_map(|&replicas| ranks.iter().map(move |&ranks| (replicas, ranks)));
    Ok(pairs.collect())
}

/// The numbers of ranks to try.
fn of_pipeline(given: &[u32], config: &Config) -> Result<Vec<u32>> {
    if given.contains(&0) {
        return Err(CommandError::NoRanks.into());
    }
    let layers = layers(config)?;
    let mut ranks = given.to_vec();
    if ranks.is_empty() {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let most = match config.pipeline.devices.gpus().len() {
            0 => (cores / config.pipeline.threads_per_rank).max(1) as u32,
            gpus => gpus as u32,
        };
        ranks = (0..32)
            .map(|power| 1 << power)
            .take_while(|ranks| *ranks < most)
            .collect();
        ranks.push(most);
    }
    ranks.sort_unstable();
    ranks.dedup();
    ranks.retain(|ranks| *ranks <= layers);
    if ranks.is_empty() {
        return Err(CommandError::TooManyRanks { layers }.into());
    }
    Ok(ranks)
}

/// How many layers the model has.
pub(super) fn layers(config: &Config) -> Result<u32> {
    Ok(compose::model(config)?.names().len() as u32)
}
