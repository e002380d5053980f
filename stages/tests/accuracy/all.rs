//! All tests, with kernels that run in the place that the module above this one says.

use super::place;

mod adapter;
mod approx;
mod attention;
mod convolution;
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
