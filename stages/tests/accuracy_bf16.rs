//! The tests of `accuracy` in `bf16`: compares every kernel with its formula in double precision, on the CPU.
//! Each number that is stored between layers may have the error of one more rounding, to `bf16`.

use pipewright_stages::{DType, Device, Place};

#[path = "accuracy/adapter.rs"]
mod adapter;
#[path = "accuracy/approx.rs"]
mod approx;
#[path = "accuracy/attention.rs"]
mod attention;
mod common;
#[path = "accuracy/convolution.rs"]
mod convolution;
#[path = "common/erfc.rs"]
mod erfc;
#[path = "accuracy/experts.rs"]
mod experts;
#[path = "accuracy/gated.rs"]
mod gated;
#[path = "accuracy/image_norm.rs"]
mod image_norm;
#[path = "accuracy/inputs.rs"]
mod inputs;
#[path = "accuracy/linear.rs"]
mod linear;
#[path = "accuracy/loss.rs"]
mod loss;
#[path = "accuracy/norm.rs"]
mod norm;
#[path = "accuracy/optimizer.rs"]
mod optimizer;
#[path = "accuracy/pointwise.rs"]
mod pointwise;
#[path = "accuracy/rms_norm.rs"]
mod rms_norm;
#[path = "accuracy/rotary.rs"]
mod rotary;

fn place() -> Place {
    Place { device: Device::Cpu, dtype: DType::Bf16 }
}
