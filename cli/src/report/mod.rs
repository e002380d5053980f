//! A run as a page: one HTML file with everything in it. The command `report` writes it.
//!
//! `record` reads what a run directory has, `charts`, `ranks`, `samples` and `tables` draw parts of it, and
//! `page` puts them together. The page needs no network. Its charts are SVG; its script only shows values
//! under the pointer.

mod charts;
mod numbers;
mod page;
mod ranks;
mod record;
mod samples;
mod serve;
mod steps;
mod tables;

pub(crate) use charts::MOST_RUNS;
pub(crate) use page::MARK;
pub use page::page;
pub use record::Record;
pub(crate) use serve::serve;
