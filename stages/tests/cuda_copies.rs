//! Copies from GPU to GPU within a process, and what else can be counted of a few passes.

#![allow(unsafe_code, reason = "the emulator's loader")]

mod common;

use pipewright_stages::devices::{pairs, probe};
use pipewright_stages::layers::Relu;
use pipewright_stages::{DType, Device, Place, Sequential, Stage, Tensor};

/// A stage on a GPU that changes no positive number.
fn stage(number: u32) -> Sequential {
    let mut stage = Sequential::new(vec![Box::new(Relu::new("relu"))]);
    let place = Place { device: Device::Cuda(number), dtype: DType::F32 };
    stage.move_to(place).expect("it runs there");
    stage
}

/// Whether there are two GPUs.
fn two() -> bool {
    !emulator::start().is_none() && probe().gpus.is_ok_and(|gpus| gpus.len() > 1)
}

#[test]
fn where_memory_is_mapped_copies_are_direct_and_no_kernel_is_loaded_late() {
    if !two() {
        return;
    }
    let [mut near, mut far] = [stage(0), stage(1)];
    let host = Tensor::from_vec(&[3], vec![1.0, 2.0, 3.0]).expect("it fits");
    let input = far.load(host).expect("there is room");
    let (output, _) = far.forward(common::train(0), input).expect("forward");
    let copy = near.receive(output).expect("copied");
    let host = copy.to(Place::default()).expect("there");
    assert_eq!(host.f32(), [1.0, 2.0, 3.0]);
    for (library, function) in [("libcuda.so", "pw_left_to_driver"), ("libcuda.so", "pw_loaded_late")] {
        if let Some(count) = emulator::counted(library, function) {
            assert_eq!(count, 0, "{function}");
        }
    }
}

#[test]
fn each_two_gpus_are_measured_in_both_directions() {
    if !two() {
        return;
    }
    let count = probe().gpus.expect("asked before").len();
    let pairs = pairs();
    assert_eq!(pairs.len(), count * (count - 1));
    for pair in pairs {
        assert_ne!(pair.from, pair.to);
        let speed = pair.speed.expect("there is room");
        assert!(speed > 0.0, "{} to {}: {speed}", pair.from, pair.to);
    }
}
