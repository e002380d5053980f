//! The content of a picture.

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
}

/// The name of a row of a timeline whose rows are shared by `replicas` replicas.
pub(super) fn row_name(timeline: &Timeline, replicas: u32, row: usize) -> String {
    match place(timeline, replicas, row) {
        (None, rank) => format!("rank {rank}"),
        (Some(replica), rank) => format!("replica {replica}, rank {rank}"),
    }
}

/// The same in a few characters.
pub(super) fn short_row_name(timeline: &Timeline, replicas: u32, row: usize) -> String {
    match place(timeline, replicas, row) {
        (None, rank) => rank.to_string(),
        (Some(replica), rank) => format!("{replica}.{rank}"),
    }
}

/// The replica of a row, if there are several, and its rank there.
fn place(timeline: &Timeline, replicas: u32, row: usize) -> (Option<usize>, usize) {
    let ranks = (timeline.ranks.len() / replicas.max(1) as usize).max(1);
    ((replicas > 1).then_some(row / ranks), row % ranks)
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
