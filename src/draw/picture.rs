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
