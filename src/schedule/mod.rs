#![doc = include_str!("README.md")]

mod action;
mod check;
mod clock;
mod costs;
mod deadlock;
mod in_turn;
mod kept;
mod lower;
mod makers;
mod measured;
mod pairs;
mod placement;
mod program;
mod replay;
mod set;
mod text;
mod timeline;
mod timetable;

pub use action::{Action, Cell, Flow, Pass};
pub use check::Schedule;
pub(crate) use clock::{Clock, Played};
pub(crate) use costs::check as check_costs;
pub use costs::{Costs, StageCost};
pub(crate) use makers::greedy;
pub use makers::greedy::Goal;
pub(crate) use makers::vee::shares as vee_in_flight;
pub(crate) use measured::median;
pub use placement::{Placement, PlacementSpec};
pub use replay::{Links, replay};
pub use text::FromCsv;
pub use timeline::{Timed, TimedTransfer, Timeline};
