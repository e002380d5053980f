//! The number formats of what goes between hosts: of wires between stages, and of sums over replicas.

use super::search::Search;
use crate::Result;
use crate::compose;
use crate::config::Config;
use crate::profile::Measured;
use pipewright::stages::{DType, WireFormat};

/// The formats of wires and of sums.
pub(super) type Short = (WireFormat, DType);

/// The formats of a config.
pub(super) fn of(config: &Config) -> Short {
    (config.pipeline.wires, config.pipeline.sums)
}

/// The formats of these configs, those with the most bytes first.
pub(super) fn all<'a>(configs: impl Iterator<Item = &'a Config>) -> Vec<Short> {
    let mut all: Vec<Short> = Vec::new();
    for short in configs.map(of) {
        if !all.contains(&short) {
            all.push(short);
        }
    }
    all.sort_by(|a, b| b.0.share().total_cmp(&a.0.share()).then(b.1.bytes().cmp(&a.1.bytes())));
    all
}

/// The formats in words, where they are not the usual ones.
pub(super) fn in_words(config: &Config) -> String {
    let (wires, sums) = of(config);
    let mut text = String::new();
    if wires != WireFormat::default() {
        text += &format!(", wires {wires}");
    }
    if sums != DType::default() {
        text += &format!(", sums {sums}");
    }
    text
}

/// The config, and the same with fewer bytes between hosts.
///
/// # Errors
/// When the sizes of the model are impossible.
pub(super) fn with_short_wires(
    config: &Config,
    search: &Search,
    measured: &Measured,
    ranks: u32,
) -> Result<Vec<Config>> {
    let mut all = vec![config.clone()];
    if !search.shortens {
        return Ok(all);
    }
    let pipeline = &config.pipeline;
    let cluster = search.links.of(&measured.cluster(1));
    let (map, world) = (config.launch.map, [pipeline.replicas, ranks, pipeline.shards]);
    let mut wires = vec![pipeline.wires];
    if cluster.parts_pipelines(map, world) && pipeline.dtype == DType::F32 {
        wires.extend([WireFormat::Bf16, WireFormat::Blocks]);
    }
    let mut sums = vec![pipeline.sums];
    if cluster.parts_replicas(map, world) && !compose::has_running_means(config)? {
        sums.push(DType::Bf16);
    }
    for sums in sums {
        for &wires in &wires {
            let mut config = config.clone();
            (config.pipeline.wires, config.pipeline.sums) = (wires, sums);
            let is_shorter = wires.share() <= pipeline.wires.share();
            if is_shorter && config.check_short().is_ok() && all.iter().all(|other| of(other) != of(&config))
            {
                all.push(config);
            }
        }
    }
    Ok(all)
}
