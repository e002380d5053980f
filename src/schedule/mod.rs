#![doc = include_str!("README.md")]

mod action;
mod check;
mod deadlock;
mod gpipe;
mod lower;
mod makers;
mod one_f_one_b;
mod placement;
mod program;
mod replay;
mod set;
mod text;
mod timeline;
mod timetable;

pub use action::{Action, Cell, Flow, Pass};
pub use check::Schedule;
pub use placement::{Placement, PlacementSpec};
pub use replay::{Links, replay};
pub use text::FromCsv;
pub use timeline::Timed;
