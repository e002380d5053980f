//! A rank's parameters as the rest of the pipeline sees them.

use pipewright_stages::{Parameter, Stage};
use serde::{Deserialize, Serialize};

use super::Worker;
use crate::checkpoint::TensorInfo;
use crate::id::{Rank, StageId};

/// What is known of a parameter without its numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParameterInfo {
    /// The name, as in a checkpoint.
    pub name: String,
    /// The dimensions, outermost first.
    pub dims: Vec<usize>,
    /// Where it lives.
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

/// Where a parameter lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Site {
    /// The rank of the stage.
    pub rank: Rank,
    /// The stage.
    pub stage: StageId,
    /// The parameter's place in the stage.
    pub index: usize,
}

impl<S: Stage> Worker<S> {
    /// This rank's parameters, in layer order.
    pub(crate) fn parameters(&mut self) -> Vec<ParameterInfo> {
        let rank = self.rank;
        let describe = |(index, parameter): (usize, &mut Parameter), stage| ParameterInfo {
            name: parameter.name().to_owned(),
            dims: parameter.dims().to_vec(),
            site: Site { rank, stage, index },
        };
        self.slots
            .iter_mut()
            .flat_map(|slot| {
                let stage = slot.id;
                slot.stage
                    .parameters()
                    .into_iter()
                    .enumerate()
                    .map(move |entry| describe(entry, stage))
            })
            .collect()
    }
}
