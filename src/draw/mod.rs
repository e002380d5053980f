//! Timelines as people look at them: a picture (SVG), and events for a trace viewer. Pure: text from numbers.
//!
//! A picture has a row for each rank, with its passes in colours; under the rows is the memory that each rank holds. It is written
//! by hand: a pass is a dozen characters of a path, where a plotting library spends a hundred and fifty on a rectangle of its own.

mod colours;
mod events;
mod figures;
mod legend;
mod memory;
mod page;
mod picture;
mod rows;
mod scale;
mod svg;

pub use events::trace_events;
pub use picture::{Panel, Picture, Units};
