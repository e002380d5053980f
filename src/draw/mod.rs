//! Pictures for people: timelines (SVG, and events for a trace viewer), and charts of a run. Pure: text from
//! numbers.
//!
//! A timeline's picture has a row for each rank, with its passes in colours. Under the rows it shows the
//! memory that each rank holds. The SVG is written without a plotting library: a pass here is a dozen
//! characters of a path, and such a library writes a rectangle of about a hundred and fifty. The SVG of
//! charts is written in the same way: they share the style of timelines, which has a light and a dark form
//! (`style.rs`).

mod axis;
mod bars;
mod chart;
mod colours;
mod events;
mod figures;
mod legend;
mod memory;
mod page;
mod picture;
mod rows;
mod scale;
mod series;
mod style;
mod svg;

pub use bars::{Bars, Row, Segment};
pub use chart::{Chart, ChartLine};
pub use events::trace_events;
pub use picture::{Panel, Picture, Units};
pub use series::Series;
pub use style::{CHART, DARK, FONT, LIGHT, where_dark};
