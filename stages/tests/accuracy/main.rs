//! Every kernel against its formula in double precision, with bounds on the error.
//!
//! A bound is a number of expected errors ([`approx::Approx`]): what one rounding of every operation comes to, by the formula,
//! the sizes and the numbers at hand. The constants of the other modules are these bounds, with the largest error measured.
//! `cargo test -p pipewright-stages --test accuracy -- --nocapture` prints what is reached.

use pipewright_stages::Place;

mod approx;
mod attention;
#[path = "../common/mod.rs"]
mod common;
#[path = "../common/erfc.rs"]
mod erfc;
mod inputs;
mod linear;
mod loss;
mod norm;
mod optimizer;
mod pointwise;

/// Where the kernels are that are tried: on the CPU.
fn place() -> Place {
    Place::default()
}
