#![doc = include_str!("README.md")]

mod auto;
mod candidate;
mod cluster;
mod costs;
mod fitting;
mod gpu;
mod layers;
mod makers;
mod measured;
mod memory;
mod memory_peaks;
mod offload;
mod partition;
mod prediction;
mod replan;
mod replicas;
mod simulate;
mod timetable;

pub use crate::{Error, Result};
pub use auto::{AUTO, Auto, Tried, Wanted, auto, like_auto};
pub use candidate::{Candidate, Contender, Fit, Setting, TIE, best};
pub use cluster::{Cluster, LinkCost, Queue};
pub use costs::{Costs, Reduction, StageCost};
pub use fitting::Fitting;
pub use gpu::{GPUS, Gpu, Kernel, Work};
pub use layers::{LayerCost, MeasuredShards, ModelCosts, ShardCost, ShardMessages};
pub use makers::greedy::Goal;
pub(crate) use makers::{greedy, vee};
#[doc(hidden)]
pub use measured::median;
pub(crate) use memory::sums;
pub use memory::{
    DataMemory, KeptForRestarts, RankMemory, Restarts, StageMemory, kept_for_restarts, memory, waiting_sums,
};
pub use offload::{Offload, offloaded};
pub use partition::partition;
pub use prediction::{Exposed, Prediction};
pub use replan::{Better, Scheduling, Watch, Why};
pub use replicas::Replicas;
pub(crate) use simulate::clock::{Clock, Played};
pub use simulate::replicas::simulate_replicas;
pub use simulate::{RankSimulation, Simulation, Wait, period, simulate};
