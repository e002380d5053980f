//! A rank's parameters as the rest of the pipeline sees them.

use pipewright_stages::{Shard, Stage};
use serde::{Deserialize, Serialize};

use super::Worker;
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

impl<S: Stage> Worker<S> {
    /// This rank's parameters, in layer order.
    pub(crate) fn parameters(&mut self) -> Vec<ParameterInfo> {
        let rank = self.rank;
        let mut all = Vec::new();
        for slot in &mut self.slots {
            let mut layers = slot.stage.parameter_layers().into_iter();
            for (index, parameter) in slot.stage.parameters().into_iter().enumerate() {
                all.push(ParameterInfo {
                    name: parameter.name().to_owned(),
                    shard: parameter.shard(),
                    is_tied: parameter.is_tied(),
                    layer: layers.next(),
                    dims: parameter.dims().to_vec(),
                    site: Site {
                        rank,
                        stage: slot.id,
                        index,
                    },
                });
            }
        }
        all
    }
}
