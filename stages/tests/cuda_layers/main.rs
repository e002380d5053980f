//! Layers, optimizers and memory on a GPU. Without a GPU, the tests run on an emulated one. Tests that set or
//! count something of a whole process (`beside`, `choice`, `frozen`, `shelves`) start one for it.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/apart.rs"]
mod documents;

mod apart;
mod attention;
mod beside;
mod bias_sums;
mod blocks;
mod choice;
mod convolution;
mod experts;
mod few_rows;
mod frozen;
mod hopper;
mod host_state;
mod onto;
mod preferences;
mod quantised;
mod shelves;
mod together;
mod wider;

use std::process::Command;
use std::thread;

use common::{assert_near, bits, gpu, here, numbers, pass, tensor, train};
use pipewright_stages::{
    DType, Init, Layer, Part, Place, Sequential, Stage, Tensor, Together, Training, chain,
};

/// How many kernels this thread launches meanwhile. `None` on a GPU.
fn launches(work: impl FnOnce()) -> Option<u64> {
    let count = || emulator::counted("libcuda.so", "pw_launched");
    let before = count();
    work();
    Some(count()? - before?)
}
