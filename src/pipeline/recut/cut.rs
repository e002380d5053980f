//! How a model is cut and shared, and in which order its passes run.

use std::fmt;

use pipewright_stages::Recompute;
use pipewright_stages::units::counted;
use serde::{Deserialize, Serialize};

/// How a model is cut and shared, and in which order its passes run: what may change while it is trained.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cut {
    /// The layers of each stage.
    pub layers: Vec<usize>,
    /// The schedule's name.
    pub schedule: String,
    /// What all stages recompute. `None`: what they recomputed at launch.
    pub recompute: Option<Recompute>,
    /// The number of replicas.
    #[serde(default = "one")]
    pub replicas: u32,
    /// The number of shards of a rank.
    #[serde(default = "one")]
    pub shards: u32,
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let layers = self.layers.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
        write!(f, "schedule {}, stages of {layers} layers", self.schedule)?;
        match [self.replicas, self.shards] {
            [1, 1] => Ok(()),
            shape => {
                let [replicas, shards] = shape.map(u64::from);
                write!(f, ", {}, {} a rank", counted(replicas, "replica"), counted(shards, "shard"))
            }
        }
    }
}

/// Older versions did not write these numbers.
fn one() -> u32 {
    1
}
