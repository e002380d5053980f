//! What fewer bytes between hosts bring.

use super::formats::{self, Short};
use super::grid::Grid;

/// The formats of the settings that fit.
fn all(grid: &Grid) -> Vec<Short> {
    formats::all(grid.found.iter().map(|found| &found.config))
}

/// Whether settings of several formats fit.
pub(super) fn are_several(grid: &Grid) -> bool {
    all(grid).len() > 1
}

/// A line for each pair of formats with its fastest setting, if there are several.
pub(super) fn compared(grid: &Grid) -> String {
    let all = all(grid);
    let line = |short: &Short| {
        let with = grid.found.iter().filter(|found| formats::of(&found.config) == *short);
        let fastest = with.min_by(|a, b| a.seconds().total_cmp(&b.seconds())).expect("one has them");
        let (wires, sums) = short;
        format!("wires {wires}, sums {sums}: {:.4} s: {}\n", fastest.seconds(), fastest.in_words())
    };
    all.iter().filter(|_| all.len() > 1).map(line).collect()
}
