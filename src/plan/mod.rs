//! What a schedule will cost before anything runs: how long a step takes, how much of it is bubble, how much
//! a rank holds. Pure: it sees schedules and numbers only.

mod auto;
mod candidate;
mod fitting;
mod holding;
mod layers;
mod partition;
mod period;
mod prediction;
mod simulate;

pub use auto::{AUTO, Auto, Tried, Wanted, auto, like_auto};
pub use candidate::{Candidate, Fit, Setting};
pub use fitting::Fitting;
pub use layers::{LayerCost, Link, ModelCosts};
pub use partition::partition;
pub use period::period;
pub use prediction::Prediction;
pub use simulate::{RankSimulation, Simulation, Wait, simulate};
