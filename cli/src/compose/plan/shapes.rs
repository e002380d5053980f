//! The shapes that a run may have: replicas, ranks of each, and shards of a rank, with as many ranks in all.

use pipewright::stages::units::counted;

use super::divided::check_shards;
use crate::compose::schedule::ranks_of;
use crate::config::{Balanced, Config, Partition, SyncKind};
use crate::error::{Error, Result};

/// How many ranks there are in all replicas and shards, if a replica has this many at launch.
pub(super) fn ranks_in_all(config: &Config, ranks: u32) -> u32 {
    ranks.saturating_mul(config.pipeline.replicas).saturating_mul(config.pipeline.shards)
}

/// The other shapes that a run with this many ranks in all may have: numbers of replicas and shards.
pub(super) fn shapes(config: &Config, all: u32) -> Vec<[u32; 2]> {
    if config.pipeline.sync == SyncKind::Server || config.pipeline.devices.has_gpu() {
        return Vec::new();
    }
    let parts = |of: u32, most: u32| (1..=most.min(of)).filter(move |part| of.is_multiple_of(*part));
    let replicas = parts(all, config.gradient_groups().min(config.pipeline.micro_batches));
    let shards =
        |replicas| parts(all / replicas, config.shard_groups()).filter(|part| part.is_power_of_two());
    let shapes = replicas.flat_map(|replicas| shards(replicas).map(move |shards| [replicas, shards]));
    let own = [config.pipeline.replicas, config.pipeline.shards];
    let mut shapes: Vec<_> = shapes.filter(|shape| *shape != own).collect();
    // The nearest ones first: there may be too many.
    let distance = |a: u32, b: u32| u64::from(a.max(b) / a.min(b));
    shapes.sort_by_key(|shape| distance(shape[0], own[0]) * distance(shape[1], own[1]));
    shapes
}

/// The config in another shape, with `all` ranks as before, and the number of ranks of a replica then. Each
/// of these has one stage, by 1f1b. Groups of gradients and of shards stay as they are, so that the weights
/// have the same bits.
///
/// # Errors
/// When the ranks cannot be divided so, when there are too few groups, or when the model cannot be divided
/// among the shards.
pub(super) fn in_shape(config: &Config, all: u32, [replicas, shards]: [u32; 2]) -> Result<(Config, u32)> {
    let parts = u64::from(replicas) * u64::from(shards);
    if parts == 0 || !u64::from(all).is_multiple_of(parts) {
        let wrong = match parts {
            0 => "the numbers of replicas and shards are 1 or more".to_owned(),
            _ => format!(
                "{} cannot be divided into {} with {} a rank: replicas times shards has to divide the number \
                 of ranks, and that number stays (--replicas, --shards)",
                counted(all.into(), "rank"),
                counted(replicas.into(), "replica"),
                counted(shards.into(), "shard")
            ),
        };
        return Err(Error::refused(wrong));
    }
    let mut config = config.clone();
    let (gradient_groups, shard_groups) = (config.gradient_groups(), config.shard_groups());
    let ranks = all / parts as u32;
    let pipeline = &mut config.pipeline;
    (pipeline.replicas, pipeline.shards) = (replicas, shards);
    (pipeline.gradient_groups, pipeline.shard_groups) = (Some(gradient_groups), Some(shard_groups));
    pipeline.devices = pipeline.devices.shared_by(all as usize);
    let micro_batches = pipeline.micro_batches;
    let problem = if replicas > gradient_groups {
        format!(
            "{replicas} replicas cannot share {}, because a replica has whole groups: begin the run with \
             pipeline.gradient_groups = {replicas} or more",
            counted(gradient_groups.into(), "gradient group")
        )
    } else if shards > shard_groups {
        format!(
            "{shards} shards cannot share {}, because a shard has whole groups: begin the run with \
             pipeline.shard_groups = {shards} or more",
            counted(shard_groups.into(), "shard group")
        )
    } else if replicas > micro_batches {
        format!("{replicas} replicas share {micro_batches} micro-batches, so some would have nothing to do")
    } else {
        String::new()
    };
    if !problem.is_empty() {
        return Err(Error::refused(problem));
    }
    let config = with_schedule(&config, "1f1b", [ranks, 1]);
    config.check()?;
    check_shards(&config)?;
    Ok((config, ranks))
}

/// The shapes that the groups of a run allow, in words: `2 replicas of 2 ranks`. Empty: only its own. Some
/// models cannot be divided among shards.
///
/// # Errors
/// When the schedule has no such number of ranks.
pub fn shapes_in_words(config: &Config) -> Result<Vec<String>> {
    let pipeline = &config.pipeline;
    let all = ranks_in_all(config, ranks_of(config)?);
    let own = [pipeline.replicas, pipeline.shards];
    let others = shapes(config, all);
    let is_alone = others.is_empty();
    let mut shapes: Vec<_> = std::iter::once(own).chain(others).filter(|_| !is_alone).collect();
    shapes.sort_unstable();
    let in_words = |[replicas, shards]: [u32; 2]| {
        let ranks = counted((all / (replicas * shards)).into(), "rank");
        let shards = if shards > 1 { format!(" of {shards} shards") } else { String::new() };
        format!("{} of {ranks}{shards}", counted(replicas.into(), "replica"))
    };
    Ok(shapes.into_iter().map(in_words).collect())
}

/// The config with this schedule, and with this many stages on each rank.
pub(super) fn with_schedule(config: &Config, name: &str, [ranks, chunks]: [u32; 2]) -> Config {
    let mut config = config.clone();
    let pipeline = &mut config.pipeline;
    (pipeline.schedule, pipeline.chunks) = (name.to_owned(), Some(chunks));
    (pipeline.stages, pipeline.partition) = ((ranks * chunks) as usize, Partition::Named(Balanced::Balanced));
    config
}
