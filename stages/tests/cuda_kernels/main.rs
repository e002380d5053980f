//! The tests of `accuracy` again, on a GPU: every kernel against its formula in double precision. In f32 within the bounds of
//! the CPU; in bf16 each number that is kept between layers may be off by one rounding of that more.

#![allow(clippy::duplicate_mod, reason = "the same tests twice, in f32 and in bf16")]

#[path = "../common/mod.rs"]
mod common;
#[path = "../emulator/mod.rs"]
mod emulator;
#[path = "../common/erfc.rs"]
mod erfc;
mod half;
mod single;

use pipewright_stages::{DType, Device, Place};

/// A GPU or its emulation; the CPU, which passes too, where there is neither.
fn on_gpu(dtype: DType) -> Place {
    if emulator::start().is_none() {
        return Place::default();
    }
    Place {
        device: Device::Cuda(0),
        dtype,
    }
}
