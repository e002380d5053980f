//! What is searched.

use std::path::PathBuf;
use std::rc::Rc;

use crate::commands::bars::measure;
use crate::commands::plan::links::Links;
use crate::config::{Config, Memory};
use crate::profile::{Measured, MemoryLimit};
use crate::{Result, compose};
use pipewright::mesh::Map;
use pipewright::plan::{Gpu, Prediction, Setting};
use pipewright::stages::{DType, Device};

/// What is searched.
pub(super) struct Search {
    /// Numbers of replicas, of ranks of each, and of shards of each rank.
    pub(super) shapes: Vec<[u32; 3]>,
    /// The most that a rank may hold for later backwards.
    pub(super) memory: Option<Memory>,
    /// The most that a rank may hold in all.
    pub(super) device_memory: Option<Memory>,
    /// Where the costs are from.
    pub(super) costs: CostsOf,
    /// The links between ranks.
    pub(super) links: Links,
    /// The number types.
    pub(super) dtypes: Vec<DType>,
    /// Whether what goes between hosts is also tried in fewer bytes.
    pub(super) shortens: bool,
    /// Whether the devices have more memory together than this machine.
    pub(super) is_beyond: bool,
    /// How many cores this machine has.
    pub(super) cores: u32,
}

/// Where the costs are from.
pub(super) enum CostsOf {
    /// They are measured here.
    Measured,
    /// They are in this file.
    File(PathBuf),
    /// They follow from the figures of a kind of GPU.
    Figures(Gpu),
}

/// Into how many shards and groups the layers are divided whose costs are found.
pub(super) type Divided = (u32, Option<u32>);

impl Search {
    /// Whether it is for other machines than this one.
    pub(super) fn is_elsewhere(&self) -> bool {
        !matches!(self.costs, CostsOf::Measured) || self.links.are_of_hosts() || self.is_beyond
    }

    /// The prediction for the machine on which the setting will run. If that is this one, threads share its
    /// cores.
    pub(super) fn here(&self, prediction: Prediction, config: &Config, setting: &Setting) -> Prediction {
        let pipeline = &config.pipeline;
        if self.is_elsewhere() || !pipeline.devices.gpus().is_empty() {
            return prediction;
        }
        let sizes = [setting.replicas, setting.ranks, pipeline.shards, pipeline.threads_per_rank as u32];
        let threads = sizes.into_iter().fold(1, u32::saturating_mul);
        prediction.on_cores(threads, self.cores)
    }

    /// Whether costs are known for this config's size of a micro-batch only.
    pub(super) fn is_of_one_size(&self) -> bool {
        matches!(self.costs, CostsOf::File(_))
    }

    /// Whether there are several numbers of shards.
    pub(super) fn has_shards_to_compare(&self) -> bool {
        self.shapes.windows(2).any(|pair| pair[0][2] != pair[1][2])
    }

    /// Whether memory is limited.
    pub(super) fn is_limited(&self) -> bool {
        self.memory.is_some() || self.device_memory.is_some()
    }

    /// The most that a rank may hold for later backwards: what is given, or what a GPU that is here has.
    pub(super) fn memory(&self, config: &Config, ranks: u32) -> Result<Option<Memory>> {
        match (self.memory, &self.costs) {
            (None, CostsOf::Measured | CostsOf::File(_)) => compose::gpu_memory(config, ranks),
            (given, _) => Ok(given),
        }
    }

    /// The values of `launch.map` to try: both, if they put what talks on other hosts.
    pub(super) fn maps(&self, config: &Config, measured: &Measured, replicas: u32, ranks: u32) -> Vec<Map> {
        let cluster = self.links.of(&measured.cluster(1));
        let world = [replicas, ranks, config.pipeline.shards];
        let parts = |map| [cluster.parts_pipelines(map, world), cluster.parts_replicas(map, world)];
        match parts(Map::Pipeline) == parts(Map::Replicas) {
            true => vec![config.launch.map],
            false => vec![Map::Pipeline, Map::Replicas],
        }
    }

    /// How the layers are divided whose costs are found for this config.
    pub(super) fn divided(&self, config: &Config) -> Result<Divided> {
        let of = |config: &Config| (config.pipeline.shards, config.pipeline.shard_groups);
        Ok(match self.costs {
            CostsOf::Measured => of(&compose::to_measure(config)?),
            CostsOf::File(_) | CostsOf::Figures(_) => of(config),
        })
    }

    /// The costs of a config's layers. `what` says which config it is. Costs that are measured here need
    /// memory of this machine.
    pub(super) fn costs(
        &self,
        config: &Config,
        what: &str,
        limits: &[(Device, MemoryLimit)],
    ) -> Result<Rc<Measured>> {
        let measured = match &self.costs {
            CostsOf::File(path) => compose::measured_in(config, path)?.0,
            CostsOf::Figures(gpu) => compose::modelled(config, gpu)?,
            CostsOf::Measured => measure(config, what, limits, self.links.hosts())?,
        };
        let cluster = self.links.of(&measured.cluster(1));
        Ok(Rc::new(match self.links.are_none() {
            true => measured,
            false => measured.linked(&cluster)?,
        }))
    }
}
