#![doc = include_str!("README.md")]

mod auto;
mod candidate;
mod choose;
mod clock;
mod costs;
mod fitting;
mod holding;
mod kept;
mod layers;
mod makers;
mod measured;
mod memory;
mod partition;
mod period;
mod prediction;
mod simulate;
mod timetable;

pub use auto::{AUTO, Auto, Tried, Wanted, auto, like_auto};
pub use candidate::{Candidate, Fit, Setting};
pub use choose::{Contender, TIE, best};
pub(crate) use clock::{Clock, Played};
pub use costs::{Costs, StageCost};
pub use fitting::Fitting;
pub use layers::{LayerCost, LinkCost, ModelCosts};
pub use makers::greedy::Goal;
pub(crate) use makers::{greedy, vee};
pub(crate) use measured::median;
pub use memory::{DataMemory, RankMemory, StageMemory, memory};
pub use partition::partition;
pub use period::period;
pub use prediction::Prediction;
pub use simulate::{RankSimulation, Simulation, Wait, simulate};
