//! The tests in `bf16`.

use pipewright_stages::{DType, Place};

#[path = "../accuracy/all.rs"]
mod all;

fn place() -> Place {
    crate::on_gpu(DType::Bf16)
}
