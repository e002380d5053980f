//! Where every rank of a run is: its replica, its place in the pipeline, its tensor shard, its process and
//! its device. [`pipewright_schedule::mesh`] says how ranks are numbered.

use pipewright_stages::Place;

pub use pipewright_schedule::mesh::{Axis, Coordinate, MAX_RANKS, Map, RankName};

/// A mesh whose ranks have a place to compute.
pub type Mesh = pipewright_schedule::mesh::Mesh<Place>;
