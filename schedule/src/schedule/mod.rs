#![doc = include_str!("README.md")]

mod action;
mod check;
mod deadlock;
mod in_turn;
mod joined;
mod link;
mod lower;
mod offload;
mod pairs;
mod part;
mod placement;
mod program;
mod replay;
mod set;
mod text;
mod timeline;

pub use crate::{Error, Result};
pub use action::{Action, Cell, Flow, Pass};
pub use check::Schedule;
pub use link::LinkKind;
pub use offload::{Move, MoveStep};
pub use placement::{Placement, PlacementSpec};
pub(crate) use program::{Id, MAX_CELLS, NONE, Program};
pub use replay::replay;
pub(crate) use replay::{Event, Replay};
pub use text::FromCsv;
pub use timeline::{Timed, TimedCopy, TimedReduction, TimedShardWait, TimedTransfer, Timeline};
