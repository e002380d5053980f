//! The tests of `accuracy` in `bf16`: compares every kernel with its formula in double precision, on the CPU.
//! Each number that is stored between layers may have the error of one more rounding, to `bf16`.

use pipewright_stages::{DType, Device, Place};

#[path = "accuracy/all.rs"]
mod all;
mod common;
#[path = "common/erfc.rs"]
mod erfc;

fn place() -> Place {
    Place { device: Device::Cpu, dtype: DType::Bf16 }
}
