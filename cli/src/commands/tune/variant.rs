//! The configs that are compared: the given one with other settings.

use super::formats;
use crate::config::{Balanced, Config, Partition, RecomputeBy, SyncKind};
use pipewright::mesh::Map;
use pipewright::plan::{Candidate, ModelCosts, Setting};
use pipewright::stages::{DType, Recompute};

/// The schedule for measurements. On one rank it is the only one.
pub(super) const ALONE: &str = "1f1b";

/// The config in this number type.
pub(super) fn with_dtype(config: &Config, dtype: DType) -> Config {
    let mut config = config.clone();
    config.pipeline.dtype = dtype;
    config
}

/// The config with this number of shards. It has more shard groups if it needs them.
pub(super) fn with_shards(config: &Config, shards: u32) -> Config {
    let mut config = config.clone();
    config.pipeline.shards = shards;
    let groups = &mut config.pipeline.shard_groups;
    *groups = groups.map(|groups| groups.max(shards));
    config
}

/// The config with these numbers of ranks, micro-batches and rows, to be measured.
pub(super) fn with_rows(base: &Config, ranks: u32, micro_batches: u32, rows: usize) -> Config {
    let mut config = base.clone();
    let pipeline = &mut config.pipeline;
    pipeline.stages = ranks as usize;
    pipeline.chunks = None;
    pipeline.replicas = 1;
    pipeline.devices = pipeline.devices.shared_by(ranks as usize);
    pipeline.schedule = ALONE.to_owned();
    pipeline.partition = Partition::Named(Balanced::Balanced);
    pipeline.costs = None;
    pipeline.memory = None;
    pipeline.micro_batches = micro_batches;
    pipeline.micro_batch_size = Some(rows);
    pipeline.batch_size = None;
    if let RecomputeBy::Each(words) = &pipeline.recompute
        && let Some(word) = words.first()
    {
        // A list has a word for each of the old stages. All its words are equal: `Config::can_be_measured`
        // has checked it.
        pipeline.recompute = RecomputeBy::All(*word);
    }
    config
}

/// The measured config with this number of replicas, with each of these maps, and in all ways to recompute,
/// to offload and to share the optimizer's state. What costs time and saves only memory is tried if memory is
/// `limited`.
pub(super) fn with_replicas(config: &Config, replicas: u32, limited: bool, maps: &[Map]) -> Vec<Config> {
    let given = config.pipeline.recompute.clone();
    let words = match given {
        // These two have the same measured costs.
        RecomputeBy::All(Recompute::Cheap | Recompute::Full) if limited => {
            [Recompute::Cheap, Recompute::Full].map(RecomputeBy::All).to_vec()
        }
        given => vec![given],
    };
    let offloads = match config.pipeline.offload {
        Some(most) if limited => vec![None, Some(most)],
        given => vec![given],
    };
    let may_choose = config.optimizer.may_be_sharded() && config.pipeline.sync == SyncKind::Reduce;
    let sharded: &[bool] = match replicas > 1 && may_choose {
        true => &[false, true],
        false => &[false],
    };
    let mut configs = Vec::new();
    let ways = sharded.iter().flat_map(|&sharded| maps.iter().map(move |&map| (sharded, map)));
    let words = words.iter();
    for (recompute, offload) in words.flat_map(|word| offloads.iter().map(move |offload| (word, offload))) {
        for (sharded, map) in ways.clone() {
            let mut config = config.clone();
            config.launch.map = map;
            config.pipeline.recompute = recompute.clone();
            config.pipeline.offload = *offload;
            config.pipeline.replicas = replicas;
            let groups = &mut config.pipeline.gradient_groups;
            *groups = groups.map(|groups| groups.max(replicas));
            config.optimizer.sharded = sharded;
            configs.push(config);
        }
    }
    configs
}

/// The config with a candidate's setting.
pub(super) fn with_setting(
    config: &Config,
    setting: &Setting,
    candidate: &Candidate,
    costs: &ModelCosts,
) -> Config {
    let mut config = config.clone();
    let pipeline = &mut config.pipeline;
    pipeline.stages = (setting.ranks * setting.chunks) as usize;
    pipeline.chunks = Some(setting.chunks);
    pipeline.schedule.clone_from(&setting.schedule);
    let mut layers = costs.layers().iter().map(|layer| layer.name.as_str());
    let lists = candidate.counts.iter().map(|&count| {
        let names: Vec<&str> = layers.by_ref().take(count).collect();
        match names.as_slice() {
            [first, .., last] => vec![format!("{first}..{last}")],
            names => names.iter().map(|&name| name.to_owned()).collect(),
        }
    });
    pipeline.partition = Partition::Lists(lists.collect());
    config
}

/// A setting of this config, in words.
pub(super) fn in_words(setting: &Setting, config: &Config) -> String {
    let replicas = match setting.replicas {
        1 => String::new(),
        replicas => format!("replicas {replicas}, "),
    };
    let mut text = format!(
        "{}: {replicas}ranks {}, stages each {}, micro-batches {}, rows {}",
        setting.schedule,
        setting.ranks,
        setting.chunks,
        setting.micro_batches,
        config.micro_batch_size()
    );
    let word = recompute_word(config);
    if word != USUAL {
        text += &format!(", recompute {word}");
    }
    if let Some(most) = config.pipeline.offload {
        text += &format!(", offload {most}");
    }
    if config.optimizer.state_on_host {
        text += ", state on the host";
    }
    text += in_bf16(config);
    text += &formats::in_words(config);
    if config.pipeline.shards > 1 {
        text += &format!(", shards {}", config.pipeline.shards);
    }
    if config.optimizer.sharded {
        text += ", sharded optimizer";
    }
    if setting.replicas > 1 && config.launch.map == Map::Replicas {
        text += ", map replicas";
    }
    text
}

/// The words for the number type, if it is not the usual one.
pub(super) fn in_bf16(config: &Config) -> &'static str {
    match config.pipeline.dtype {
        DType::F32 => "",
        DType::Bf16 => ", in bf16",
    }
}

/// The word for what is recomputed unless a config says more.
pub(super) const USUAL: &str = "cheap";

/// What the stages of a measured config recompute.
pub(super) fn recompute_word(config: &Config) -> &'static str {
    match config.pipeline.recompute {
        RecomputeBy::All(Recompute::None) => "none",
        RecomputeBy::All(Recompute::Selective) => "selective",
        RecomputeBy::All(Recompute::Full) => "full",
        RecomputeBy::All(Recompute::Cheap) | RecomputeBy::Each(_) => USUAL,
    }
}
