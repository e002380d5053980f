//! A rank's parameters as the rest of the pipeline sees them.

use pipewright_stages::Shard;
use serde::{Deserialize, Serialize};

use crate::checkpoint::TensorInfo;
use crate::id::{Rank, StageId};

/// A parameter without its numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParameterInfo {
    /// The name, as in a checkpoint.
    pub name: String,
    /// Which part it holds of the tensor of that name.
    pub shard: Shard,
    /// Whether it is a tied copy: another layer holds the parameter of that name and shard.
    pub is_tied: bool,
    /// The layer that holds it, if the stage says so.
    pub layer: Option<String>,
    /// The dimensions, outermost first.
    pub dims: Vec<usize>,
    /// Where it is.
    pub site: Site,
}

impl From<&ParameterInfo> for TensorInfo {
    fn from(parameter: &ParameterInfo) -> Self {
        Self {
            name: parameter.name.clone(),
            dims: parameter.dims.clone(),
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

/// One parameter that several layers hold, because they say so. The gradients are summed over the sites, in
/// their order, and the copies stay equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tie {
    /// The name all sites share.
    pub(crate) name: String,
    /// Two or more sites: that of the parameter itself, then those of its tied copies, in layer order. The
    /// first one's rank adds up.
    pub(crate) sites: Vec<Site>,
}

impl Tie {
    /// The sites on one rank.
    pub(super) fn on(&self, rank: Rank) -> impl Iterator<Item = Site> {
        self.sites.iter().copied().filter(move |site| site.rank == rank)
    }

    /// The ranks of the sites but the first one's, each once.
    pub(super) fn others(&self) -> impl Iterator<Item = Rank> {
        let sites = self.sites.iter().enumerate();
        let new =
            sites.filter(|(index, site)| self.sites[..*index].iter().all(|other| other.rank != site.rank));
        new.skip(1).map(|(_, site)| site.rank)
    }

    /// The ranks that one gives gradients to and gets their sum from, or the other way round.
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

    /// Where the numbers of the site of this index are: the block of its rank among those of the others, and
    /// the place in it.
    pub(super) fn place(&self, index: usize) -> Option<(usize, usize)> {
        let rank = self.sites[index].rank;
        let block = self.others().position(|other| other == rank)?;
        let before = self.sites[..index].iter().filter(|site| site.rank == rank);
        Some((block, before.count()))
    }
}
