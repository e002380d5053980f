//! What does not wait for transfers under way, and what transfers take.

use std::sync::mpsc;

use parking_lot::Mutex;

use super::*;

/// How long the other member is given for a few small passes.
const SOON: Duration = Duration::from_secs(30);

/// Two activations and two gradients may be on their way before computing has to wait for their memory.
#[test]
fn computing_waits_for_no_send_of_the_passes_before() {
    if !two() {
        return;
    }
    let (has_read, is_read) = mpsc::channel();
    let is_read = Mutex::new(is_read);
    let done = Barrier::new(2);
    members(|number, communicator| {
        let mut stage = stage(place(number, DType::F32));
        if number == 0 {
            communicator.connect(&[1], &[], PATIENCE, always).expect("connected");
            for round in 0..=ROUNDS {
                let host = Tensor::from_vec(&[COUNT], numbers(round)).expect("it fits");
                let input = stage.load(host).expect("there is room");
                let (output, _) = stage.forward(common::train(0), input).expect("forward");
                if round < ROUNDS {
                    communicator.send(&output, 1).expect("queued");
                } else {
                    let host = output.to(Place::default()).expect("computed");
                    assert_eq!(host.f32(), numbers(round));
                }
            }
            has_read.send(()).expect("the other one is there");
            done.wait();
        } else {
            communicator.connect(&[], &[0], PATIENCE, always).expect("connected");
            // Nothing is received before the other member has computed, so its sends are still under way.
            let is_read = is_read.lock().recv_timeout(SOON);
            let receive = |_| communicator.receive(&[COUNT], DType::F32, 0).expect("queued");
            let received: Vec<_> = (0..ROUNDS).map(receive).collect();
            for (round, tensor) in received.into_iter().enumerate() {
                let host = stage.receive(tensor).and_then(|tensor| tensor.to(Place::default()));
                assert_eq!(host.expect("there").f32(), numbers(round));
            }
            done.wait();
            is_read.expect("the other member computes while its sends are under way");
        }
    });
}

/// Otherwise ranks of several processes can wait for each other in a circle, and the check of a schedule does
/// not know of it.
#[test]
fn a_copy_from_another_gpu_waits_for_no_transfer_between_processes() {
    if !two() || probe().gpus.is_ok_and(|gpus| gpus.len() < 3) {
        return;
    }
    let (has_read, is_read) = mpsc::channel();
    let is_read = Mutex::new(is_read);
    let done = Barrier::new(2);
    members(|number, communicator| {
        let mut stage = stage(place(number, DType::F32));
        if number == 0 {
            communicator.connect(&[], &[1], PATIENCE, always).expect("connected");
            let late = communicator.receive(&[COUNT], DType::F32, 1).expect("queued");
            let mut near = self::stage(place(2, DType::F32));
            let host = Tensor::from_vec(&[COUNT], numbers(1)).expect("it fits");
            let input = near.load(host).expect("there is room");
            let (output, _) = near.forward(common::train(0), input).expect("forward");
            let copy = stage.receive(output).expect("copied");
            let host = copy.to(Place::default()).expect("there");
            assert_eq!(host.f32(), numbers(1));
            has_read.send(()).expect("the other one is there");
            let late = stage.receive(late).and_then(|tensor| tensor.to(Place::default()));
            assert_eq!(late.expect("there").f32(), numbers(2));
            done.wait();
        } else {
            communicator.connect(&[0], &[], PATIENCE, always).expect("connected");
            let is_read = is_read.lock().recv_timeout(SOON);
            let host = Tensor::from_vec(&[COUNT], numbers(2)).expect("it fits");
            let input = stage.load(host).expect("there is room");
            let (output, _) = stage.forward(common::train(0), input).expect("forward");
            communicator.send(&output, 0).expect("queued");
            done.wait();
            is_read.expect("the copy is there before anything is sent");
        }
    });
}

/// A kernel that waits for another member must leave the device to others, and a transfer must not cost a
/// thread.
#[test]
fn a_transfer_takes_few_blocks_and_starts_no_thread() {
    if !two() {
        return;
    }
    let done = Barrier::new(2);
    members(|number, communicator| {
        let mut stage = stage(place(number, DType::F32));
        match number {
            0 => send_all(&mut stage, communicator),
            _ => receive_all(&mut stage, DType::F32, communicator),
        }
        done.wait();
    });
    if let Some(threads) = emulator::counted("libnccl.so", "pw_threads_started") {
        assert_eq!(threads, 0);
        let blocks = emulator::counted("libnccl.so", "pw_most_blocks").expect("asked before");
        assert!((4..=8).contains(&blocks), "{blocks} blocks");
    }
}
