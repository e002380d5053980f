//! What a schedule will cost before anything runs: how long a step takes, how much of it is bubble, how much
//! a rank holds. Pure: it sees schedules and numbers only.

mod auto;
mod period;
mod simulate;

pub use auto::{Auto, Tried, Wanted, auto};
pub use period::period;
pub use simulate::{RankSimulation, Simulation, Wait, simulate};
