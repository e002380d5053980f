//! The content of a picture.

use crate::id::Rank;
use crate::mesh::{Coordinate, RankName};
use crate::schedule::Timeline;

/// One or more timelines, one above the other on the same axes.
#[derive(Clone, Debug)]
pub struct Picture<'a> {
    /// What is drawn, from top to bottom.
    pub panels: Vec<Panel<'a>>,
    /// The units of the timelines.
    pub units: Units,
    /// Whether transfers are drawn, as lines between the rows.
    pub transfers: bool,
}

/// A timeline with its title.
#[derive(Clone, Debug)]
pub struct Panel<'a> {
    /// What it is called.
    pub title: String,
    /// What is drawn.
    pub timeline: &'a Timeline,
    /// How many replicas share its rows evenly: first the ranks of replica 0, then the ranks of replica 1.
    pub replicas: u32,
    /// How many shards each of these ranks has: a row each, one below the other.
    pub shards: u32,
}

impl Panel<'_> {
    /// The name of the rank whose row this is.
    pub(super) fn row_name(&self, row: usize) -> RankName {
        let [replicas, shards] = [self.replicas, self.shards].map(|count| count.max(1));
        let ranks = (self.timeline.ranks.len() as u32 / (replicas * shards)).max(1);
        let (row, shard) = (row as u32 / shards, row as u32 % shards);
        let at = Coordinate { replica: row / ranks, rank: Rank(row % ranks), shard };
        RankName::new(at, [replicas, shards])
    }
}

/// The units of a timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Units {
    /// Times and memory in the units of [`Costs`](crate::plan::Costs).
    Plain,
    /// Times in seconds, memory in bytes.
    SecondsAndBytes,
}

impl Picture<'_> {
    pub(super) fn timelines(&self) -> impl Iterator<Item = &Timeline> {
        self.panels.iter().map(|panel| panel.timeline)
    }
}
