//! Compares every kernel with its formula in double precision, with bounds on the error.
//!
//! The bounds are multiples of the expected error ([`approx::Approx`]): what rounding every operation once is
//! expected to cost, for this formula, these sizes and these numbers. They are constants in the other
//! modules, with the largest error measured. `cargo test -p pipewright-stages --test accuracy -- --nocapture`
//! prints the errors.

use pipewright_stages::Place;

mod adapter;
mod approx;
mod attention;
#[path = "../common/mod.rs"]
mod common;
mod convolution;
#[path = "../common/erfc.rs"]
mod erfc;
mod experts;
mod gated;
mod image_norm;
mod inputs;
mod linear;
mod loss;
mod norm;
mod optimizer;
mod pointwise;
mod rms_norm;
mod rotary;

/// Where the tested kernels run: on the CPU.
fn place() -> Place {
    Place::default()
}
