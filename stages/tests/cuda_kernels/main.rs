//! The tests of `accuracy` on a GPU: compares every kernel with its formula in double precision. In f32 the
//! bounds are the same as on the CPU. In bf16, each number that is stored between layers may have the error
//! of one more rounding, to bf16.

#![allow(clippy::duplicate_mod, reason = "the same tests twice, in f32 and in bf16")]

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/erfc.rs"]
mod erfc;
mod erring;
mod half;
mod hopper;
mod single;

use pipewright_stages::{DType, Device, Place};

/// A GPU or the emulator. The CPU if there is neither, so that the tests still pass.
fn on_gpu(dtype: DType) -> Place {
    if emulator::start().is_none() {
        return Place::default();
    }
    Place { device: Device::Cuda(0), dtype }
}
