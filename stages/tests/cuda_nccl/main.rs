//! Transfers between GPUs by NCCL, between two threads with a GPU each.

#![allow(unsafe_code, reason = "the emulator's loader")]

#[path = "../common/mod.rs"]
mod common;
mod overlap;
mod unmarked;

use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use pipewright_stages::devices::probe;
use pipewright_stages::layers::Relu;
use pipewright_stages::nccl::{Communicator, Member, UniqueId};
use pipewright_stages::{DType, Device, Error, Place, Sequential, Shape, Stage, Tensor};

const PATIENCE: Duration = Duration::from_secs(60);

/// A `going_on` that never stops the wait.
fn always() -> Result<(), Error> {
    Ok(())
}

fn place(number: u32, dtype: DType) -> Place {
    Place { device: Device::Cuda(number), dtype }
}

/// Whether there are two GPUs.
fn two() -> bool {
    !emulator::start().is_none() && probe().gpus.is_ok_and(|gpus| gpus.len() > 1)
}

fn join(id: &UniqueId, number: u32) -> Communicator {
    let device = Device::Cuda(number);
    let member = Member { number, of: 2, device };
    Communicator::join(id, member, PATIENCE, always).expect("both come")
}

/// Runs both members, each on its own thread.
fn members(task: impl Fn(u32, &Communicator) + Sync) {
    let id = UniqueId::make().expect("NCCL is there");
    thread::scope(|scope| {
        for number in 0..2 {
            let task = &task;
            scope.spawn(move || task(number, &join(&id, number)));
        }
    });
}

/// A stage on a GPU that changes no positive number.
fn stage(place: Place) -> Sequential {
    let mut stage = Sequential::new(vec![Box::new(Relu::new("relu"))]);
    stage.move_to(place).expect("it runs there");
    stage
}

fn numbers(round: usize) -> Vec<f32> {
    (0..COUNT).map(|number| (number % 60 + round) as f32 / 4.0).collect()
}

const COUNT: usize = 300;
const ROUNDS: usize = 4;

fn send_all(stage: &mut Sequential, communicator: &Communicator) {
    communicator.connect(&[1], &[], PATIENCE, always).expect("connected");
    for round in 0..ROUNDS {
        let host = Tensor::from_vec(&[COUNT], numbers(round)).expect("it fits");
        let input = stage.load(host).expect("there is room");
        let (output, _) = stage.forward(common::train(0), input).expect("forward");
        // The next round may use the memory of this round's output.
        communicator.send(&output, 1).expect("queued");
    }
}

fn receive_all(stage: &mut Sequential, dtype: DType, communicator: &Communicator) {
    communicator.connect(&[], &[0], PATIENCE, always).expect("connected");
    let receive = |_| communicator.receive(&[COUNT], dtype, 0).expect("queued");
    let received: Vec<_> = (0..ROUNDS).map(receive).collect();
    for (round, tensor) in received.into_iter().enumerate() {
        let host = stage.receive(tensor).and_then(|tensor| tensor.to(Place::default()));
        assert_eq!(host.expect("there").f32(), numbers(round));
    }
}

#[test]
fn what_is_computed_is_what_comes_and_its_memory_waits_until_it_is_sent() {
    if !two() {
        return;
    }
    for dtype in [DType::F32, DType::Bf16] {
        let done = Barrier::new(2);
        members(|number, communicator| {
            let mut stage = stage(place(number, dtype));
            match number {
                0 => send_all(&mut stage, communicator),
                _ => receive_all(&mut stage, dtype, communicator),
            }
            // Queued transfers end when their communicator is dropped.
            done.wait();
        });
    }
}

/// Runs both members, each with two communicators: for transfers and for exchanges.
fn members_twice(task: impl Fn(u32, &Communicator, &Communicator) + Sync) {
    let ids = [(); 2].map(|()| UniqueId::make().expect("NCCL is there"));
    thread::scope(|scope| {
        for number in 0..2 {
            let task = &task;
            scope.spawn(move || {
                let [wires, sums] = ids.map(|id| join(&id, number));
                let other = [1 - number];
                for communicator in [&wires, &sums] {
                    let connected = communicator.connect(&other, &other, PATIENCE, always);
                    connected.expect("connected");
                }
                task(number, &wires, &sums);
            });
        }
    });
}

#[test]
fn an_exchange_goes_both_ways_and_waits_for_no_later_receive() {
    if !two() {
        return;
    }
    let done = Barrier::new(2);
    members_twice(|number, wires, sums| {
        let other = 1 - number;
        let mut stage = stage(place(number, DType::F32));
        let mut computed = |round: usize| {
            let host = Tensor::from_vec(&[COUNT], numbers(round)).expect("it fits");
            let input = stage.load(host).expect("there is room");
            stage.forward(common::train(0), input).expect("forward").0
        };
        let own = number as usize;
        // The other one receives this only after the exchanges. Until then nothing may use its memory again.
        let early = computed(7);
        if number == 0 {
            wires.send(&early, 1).expect("queued");
        }
        let exchange = |round: usize, given: &Tensor| {
            let taken = sums.exchange(&[(other, given)], &[(other, Shape::f32(&[COUNT]), DType::F32)]);
            (round, taken.expect("queued").remove(0))
        };
        // The memory of what is given may be used for the next round.
        let taken: Vec<_> = (0..ROUNDS).map(|round| exchange(round, &computed(round + own))).collect();
        // In the last one, nothing comes to the first member.
        let last = match number {
            0 => sums.exchange(&[(1, &computed(ROUNDS + 3))], &[]),
            _ => sums.exchange(&[], &[(0, Shape::f32(&[COUNT]), DType::F32)]),
        };
        let last = last.expect("queued");
        let mut stage = self::stage(place(number, DType::F32));
        let mut read = |tensor: Tensor| {
            let host = stage.receive(tensor).and_then(|tensor| tensor.to(Place::default()));
            host.expect("there").f32().to_vec()
        };
        for (round, tensor) in taken {
            assert_eq!(read(tensor), numbers(round + other as usize));
        }
        for tensor in last {
            assert_eq!(read(tensor), numbers(ROUNDS + 3));
        }
        if number == 1 {
            let late = wires.receive(&[COUNT], DType::F32, 0).expect("queued");
            assert_eq!(read(late), numbers(7));
        }
        done.wait();
    });
}

#[test]
fn a_thread_that_waits_for_what_never_comes_is_freed_from_outside() {
    if !two() {
        return;
    }
    let done = Barrier::new(2);
    members(|number, communicator| {
        if number == 0 {
            communicator.connect(&[1], &[], PATIENCE, always).expect("connected");
        } else {
            communicator.connect(&[], &[0], PATIENCE, always).expect("connected");
            let aborter = communicator.aborter();
            let tensor = communicator.receive(&[COUNT], DType::F32, 0).expect("queued");
            let mut stage = stage(place(1, DType::F32));
            let alarm = thread::spawn(move || {
                thread::sleep(Duration::from_millis(50));
                aborter.abort();
            });
            let tensor = stage.receive(tensor).expect("queued");
            tensor.to(Place::default()).expect("whatever it holds");
            alarm.join().expect("no panic");
            let said = communicator.check().expect_err("it is of no use now").to_string();
            assert!(said.contains("have been ended, since another rank has stopped"), "{said}");
        }
        done.wait();
    });
}

#[test]
fn a_member_that_never_comes_is_not_waited_for_for_ever() {
    if !two() {
        return;
    }
    let id = UniqueId::make().expect("NCCL is there");
    let member = Member { number: 0, of: 2, device: Device::Cuda(0) };
    let soon = Duration::from_millis(50);
    let said = Communicator::join(&id, member, soon, always).expect_err("nobody comes").to_string();
    assert!(said.contains("not done within 0.05 s"), "{said}");
    // `going_on` is called before the deadline, so its error comes first.
    let stop = || Err(Error::other("rank 1 has stopped"));
    let id = UniqueId::make().expect("NCCL is there");
    let said = Communicator::join(&id, member, PATIENCE, stop).expect_err("nobody comes").to_string();
    assert_eq!(said, "rank 1 has stopped");
}

#[test]
fn a_tensor_that_is_elsewhere_is_not_sent() {
    if !two() {
        return;
    }
    members(|number, communicator| {
        let tensor = Tensor::zeros(&[2]);
        let said = communicator.send(&tensor, 1 - number).expect_err("refused").to_string();
        assert!(said.contains("it is on cpu"), "{said}");
    });
}

/// Names the file of [`dropping_a_communicator_waits_for_an_abort_that_another_thread_has_begun`] in the
/// process that it starts.
const ABORTS: &str = "PIPEWRIGHT_EMULATOR_ABORTS";

/// A process that ends in the middle of an abort crashes: NCCL then calls a driver that has shut down.
#[test]
fn dropping_a_communicator_waits_for_an_abort_that_another_thread_has_begun() {
    let Some(path) = std::env::var_os(ABORTS) else {
        let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("aborts");
        std::fs::write(&file, "").expect("written");
        let mut again = std::process::Command::new(std::env::current_exe().expect("this test"));
        let name = "dropping_a_communicator_waits_for_an_abort_that_another_thread_has_begun";
        again.args([name, "--exact", "--nocapture"]);
        let ended = again.env(ABORTS, file).status();
        return assert!(ended.expect("started").success());
    };
    if !two() {
        return;
    }
    let aborts = || std::fs::read_to_string(&path).unwrap_or_default();
    let done = Barrier::new(2);
    members(|number, communicator| {
        if number == 1 {
            done.wait();
            return;
        }
        let aborter = communicator.aborter();
        let then = thread::scope(|scope| {
            scope.spawn(move || aborter.abort());
            while !aborts().contains("begun") {
                thread::yield_now();
            }
            // What dropping the communicator does, in the time that the other thread takes.
            communicator.aborter().abort();
            aborts()
        });
        done.wait();
        assert!(then.contains("done"), "{then}");
    });
}
