//! Compares every kernel with its formula in double precision, with bounds on the error.
//!
//! The bounds are multiples of the expected error (`approx.rs`): what rounding every operation once is
//! expected to cost, for this formula, these sizes and these numbers. They are constants in the other
//! modules, with the largest error measured. `cargo test -p pipewright-stages --test accuracy -- --nocapture`
//! prints the errors.

use pipewright_stages::Place;

#[path = "all.rs"]
mod all;
#[path = "../common/mod.rs"]
mod common;
#[path = "../common/erfc.rs"]
mod erfc;

/// Where the tested kernels run: on the CPU.
fn place() -> Place {
    Place::default()
}
