//! Timelines for people: a picture (SVG), and events for a trace viewer. Pure: text from numbers.
//!
//! A picture has a row for each rank, with its passes in colours. Under the rows it shows the memory that
//! each rank holds. The SVG is written without a plotting library: a pass here is a dozen characters of a
//! path, and such a library writes a rectangle of about a hundred and fifty.

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
