//! `about.json`: what a run trains on and what was planned for it. A report shows that beside what was
//! measured.

use serde::{Deserialize, Serialize};

use super::forecast::StepTime;
use super::picture::LossUnit;
use crate::plan::RankMemory;

/// What a run trains on and what was planned for it, as it last began or was resumed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct About {
    /// The machine of process 0: a name and a value each, such as `processor`.
    pub machine: Vec<(String, String)>,
    /// The memory that each rank of a replica was estimated to need, in bytes. Empty: it was not estimated.
    pub memory: Vec<RankMemory>,
    /// The replica of each rank and its rank in that, in the order of the numbers in `metrics.jsonl`.
    pub ranks: Vec<(u32, u32)>,
    /// The predicted time and bubble of a step, once they are known.
    pub predicted: Option<StepTime>,
    /// What the loss is measured in.
    pub loss: Option<LossUnit>,
}
