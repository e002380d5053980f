//! The tests in `bf16`. Each number that is stored between layers may have the error of one more rounding, to
//! `bf16`.

use pipewright_stages::{DType, Device, Place};

#[path = "all.rs"]
mod all;

fn place() -> Place {
    Place { device: Device::Cpu, dtype: DType::Bf16 }
}
