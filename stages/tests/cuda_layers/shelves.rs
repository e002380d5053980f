//! A thread without memory uses what other threads of its GPU have put aside.

use std::sync::mpsc::channel;

use pipewright_stages::error::ErrorKind;
use pipewright_stages::layers::Relu;

use super::*;

/// The memory of the GPU, set in the process where there is so little.
const MEMORY: &str = "PIPEWRIGHT_EMULATOR_MEMORY";
/// Bytes of the whole GPU. Products of each thread take an eighth of them.
const BYTES: usize = 256 << 20;
/// Numbers of a tensor that takes an eighth too.
const EIGHTH: usize = BYTES / 8 / 4;

/// A stage on the GPU that changes no positive number.
fn stage() -> Sequential {
    let mut stage = Sequential::new(vec![Box::new(Relu::new("relu"))]);
    stage.move_to(gpu(DType::F32)).expect("it runs there");
    stage
}

/// Numbers on the GPU that were computed there.
fn computed(stage: &mut Sequential, number: f32) -> Tensor {
    let host = Tensor::from_vec(&[EIGHTH], vec![number; EIGHTH]).expect("it fits");
    let input = stage.load(host).expect("there is room");
    stage.forward(train(0), input).expect("forward").0
}

/// Runs a test of this program again, with a small GPU. Returns whether this is that process.
fn is_small(test: &str) -> bool {
    if !matches!(emulator::start(), emulator::Cuda::Emulated(_)) {
        return false;
    }
    if std::env::var_os(MEMORY).is_some() {
        return true;
    }
    let output = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", test, "--nocapture"])
        .env(MEMORY, BYTES.to_string())
        .output()
        .expect("a process");
    assert!(output.status.success(), "{output:?}");
    false
}

#[test]
fn unused_blocks_of_another_thread_are_freed_when_there_is_no_other_memory() {
    if !is_small("shelves::unused_blocks_of_another_thread_are_freed_when_there_is_no_other_memory") {
        return;
    }
    let (has_put, is_put) = channel();
    let (has_taken, is_taken) = channel();
    // Each thread has its own ends, so that a failure of one ends the other.
    thread::scope(move |scope| {
        scope.spawn(move || {
            let mut stage = stage();
            // Two eighths lie on this thread's shelf, and four are free.
            drop([computed(&mut stage, 1.0), computed(&mut stage, 2.0)]);
            has_put.send(()).expect("the other one waits");
            is_taken.recv().expect("the other one goes on");
            // It goes on with what there is.
            let host = computed(&mut stage, 3.0).to(Place::default()).expect("there");
            assert_eq!(host.f32(), vec![3.0; EIGHTH]);
        });
        is_put.recv().expect("there are two");
        let mut stage = stage();
        let large = vec![4.0; 5 * EIGHTH];
        let host = Tensor::from_vec(&[large.len()], large.clone()).expect("it fits");
        let input = stage.load(host).expect("there is room once the other shelf is empty");
        let host = input.to(Place::default()).expect("there");
        assert_eq!(host.f32(), large);
        // More than there is.
        let host = Tensor::zeros(&[7 * EIGHTH]);
        let error = stage.load(host).expect_err("that is too much");
        assert!(matches!(error.kind, ErrorKind::OutOfMemory(_)), "{error}");
        has_taken.send(()).expect("the other one waits");
    });
}
