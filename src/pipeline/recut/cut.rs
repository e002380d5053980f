//! How a model is cut, and in which order its passes run.

use pipewright_stages::Recompute;
use serde::{Deserialize, Serialize};

/// How a model is cut, and in which order its passes run: what may change while it is trained.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cut {
    /// The layers of each stage.
    pub layers: Vec<usize>,
    /// The schedule's name.
    pub schedule: String,
    /// What all stages recompute. `None`: what they recomputed at launch.
    pub recompute: Option<Recompute>,
}
