//! A rank's parameters as the rest of the pipeline sees them.

use pipewright_stages::Shard;
use pipewright_stages::optimizer::StateFormat;
use serde::{Deserialize, Serialize};

use crate::checkpoint::TensorInfo;
use crate::checksum::Checksum;
use crate::id::{Rank, StageId};

/// A parameter without its numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParameterInfo {
    /// The name, also used in checkpoints.
    pub name: String,
    /// Which part it holds of the tensor of that name.
    pub shard: Shard,
    /// Whether it is a tied copy: another layer holds the parameter of that name and shard.
    pub is_tied: bool,
    /// Whether it is trained. A frozen parameter has no gradient and no optimizer state.
    pub is_trained: bool,
    /// Whether the optimizer has state for it.
    pub(crate) is_optimized: bool,
    /// Whether its numbers take few bits, and are not in checkpoints: see
    /// [`Parameter::quantise`](pipewright_stages::Parameter::quantise).
    pub is_quantised: bool,
    /// The layer that holds it, if the stage says so.
    pub layer: Option<String>,
    /// The dimensions, outermost first.
    pub dims: Vec<usize>,
    /// The sizes of the tensors that are fused in it: see
    /// [`Parameter::fuse`](pipewright_stages::Parameter::fuse).
    pub fused: Vec<usize>,
    /// Where it is.
    pub site: Site,
    /// The checksum of the weights it starts with, if there are several replicas or shards to compare.
    pub(crate) weights: Option<Checksum>,
}

/// What a rank has built.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Built {
    /// The parameters of all its stages.
    pub(crate) parameters: Vec<ParameterInfo>,
    /// The names of each stage's layers.
    pub(crate) layers: Vec<(StageId, Vec<String>)>,
    /// The name of its GPU, if there are shards to compare.
    pub(crate) gpu: Option<String>,
}

impl From<&ParameterInfo> for TensorInfo {
    fn from(parameter: &ParameterInfo) -> Self {
        Self {
            name: parameter.name.clone(),
            dims: parameter.dims.clone(),
            fused: parameter.fused.clone(),
            is_trained: parameter.is_optimized,
            is_elsewhere: parameter.is_quantised,
            format: StateFormat::F32,
        }
    }
}

/// Where a parameter is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Site {
    /// The rank that has the stage.
    pub rank: Rank,
    /// The stage.
    pub stage: StageId,
    /// The parameter's place in the stage.
    pub index: usize,
}

/// One tied parameter: layers say that they hold the same weights. Its gradients are summed over its sites,
/// in their order, and so the copies stay equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tie {
    /// The name all sites share.
    pub(crate) name: String,
    /// Two or more sites: first the parameter itself, then its tied copies in layer order. The first site's
    /// rank adds the gradients.
    pub(crate) sites: Vec<Site>,
    /// Whether it is trained.
    pub(crate) is_trained: bool,
}

impl Tie {
    /// The sites on one rank.
    pub(super) fn on(&self, rank: Rank) -> impl Iterator<Item = Site> {
        self.sites.iter().copied().filter(move |site| site.rank == rank)
    }

    /// The ranks of the other sites, each once, without the first site's rank.
    pub(super) fn others(&self) -> impl Iterator<Item = Rank> {
        let sites = self.sites.iter().enumerate();
        let new =
            sites.filter(|(index, site)| self.sites[..*index].iter().all(|other| other.rank != site.rank));
        new.skip(1).map(|(_, site)| site.rank)
    }

    /// The ranks with which `rank` exchanges gradients and their sum.
    pub(super) fn partners(&self, rank: Rank) -> Vec<Rank> {
        let first = self.sites[0].rank;
        if rank == first {
            self.others().collect()
        } else if self.on(rank).next().is_some() {
            vec![first]
        } else {
            Vec::new()
        }
    }

    /// Where to find the numbers of the site with this index: the number of its rank's block among the other
    /// ranks, and the number of the site in that block.
    pub(super) fn place(&self, index: usize) -> Option<(usize, usize)> {
        let rank = self.sites[index].rank;
        let block = self.others().position(|other| other == rank)?;
        let before = self.sites[..index].iter().filter(|site| site.rank == rank);
        Some((block, before.count()))
    }
}
