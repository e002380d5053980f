//! What is drawn.

use crate::schedule::Timeline;

/// One or more timelines, one above the other on the same axes.
#[derive(Clone, Debug)]
pub struct Picture<'a> {
    /// What is drawn, from top to bottom.
    pub panels: Vec<Panel<'a>>,
    /// What the numbers of the timelines are.
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
}

/// What the numbers of a timeline are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Units {
    /// Times in any one unit, memory in any one unit, as [`Costs`](crate::plan::Costs) have them.
    Plain,
    /// Times in seconds, memory in bytes.
    SecondsAndBytes,
}

impl Picture<'_> {
    pub(super) fn timelines(&self) -> impl Iterator<Item = &Timeline> {
        self.panels.iter().map(|panel| panel.timeline)
    }
}
