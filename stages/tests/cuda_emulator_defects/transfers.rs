//! Transfers by NCCL: their place in the order of streams, groups, and what they take from a device.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::thread;

use cudarc::driver::result;
use cudarc::driver::sys::{self, CUdeviceptr, CUstream};
use cudarc::nccl::sys::{self as nccl, ncclComm_t, ncclDataType_t, ncclResult_t, ncclUniqueId};

use crate::driver::{UNSET, communicator};
use crate::machine::{Machine, allocate, copy, edge, fill, kernel, launch, slowdown, stream, synchronize};

/// One of two ranks, on the device of its number, as a thread.
struct Rank<'m> {
    machine: &'m Machine,
    comm: ncclComm_t,
    number: i32,
    stream: CUstream,
}

impl<'m> Rank<'m> {
    fn join(machine: &'m Machine, number: i32, id: ncclUniqueId, blocks: i32) -> Self {
        machine.enter(number);
        let mut comm = null_mut();
        let mut config = communicator(true, blocks);
        // SAFETY: the pointers are to locals.
        let joined = unsafe { nccl::ncclCommInitRankConfig(&mut comm, 2, id, number, &mut config) };
        assert_eq!(joined, ncclResult_t::ncclSuccess);
        Self { machine, comm, number, stream: stream() }
    }

    /// Sends to, or receives from, the other rank.
    fn transfer(&self, at: CUdeviceptr, count: usize, stream: CUstream) -> ncclResult_t {
        let (peer, number, stream) = (1 - self.number, ncclDataType_t::ncclFloat32, stream.cast());
        // SAFETY: the tests pass memory that they allocated.
        unsafe {
            match self.number {
                0 => nccl::ncclSend(at as *const c_void, count, number, peer, self.comm, stream),
                _ => nccl::ncclRecv(at as *mut c_void, count, number, peer, self.comm, stream),
            }
        }
    }
}

impl Drop for Rank<'_> {
    fn drop(&mut self) {
        // SAFETY: nobody uses the communicator any more.
        unsafe { nccl::ncclCommAbort(self.comm) };
        synchronize(self.stream);
    }
}

/// Runs a sender and a receiver, each as a thread with a device.
fn ranks(machine: &Machine, blocks: i32, task: impl Fn(&Rank<'_>) + Sync) {
    let mut id = ncclUniqueId { internal: [0; 128] };
    // SAFETY: the address is a local's.
    assert_eq!(unsafe { nccl::ncclGetUniqueId(&mut id) }, ncclResult_t::ncclSuccess);
    thread::scope(|scope| {
        for number in 0..2 {
            let task = &task;
            scope.spawn(move || task(&Rank::join(machine, number, id, blocks)));
        }
    });
}

#[test]
fn what_is_received_is_read_without_a_wait() {
    let Some(machine) = Machine::alone() else { return };
    for right in [true, false] {
        ranks(&machine, UNSET, |rank| {
            let other = stream();
            let (x, y) = (allocate(4, rank.stream), allocate(4, other));
            fill(x, 4, rank.stream);
            synchronize(rank.stream);
            rank.transfer(x, 4, rank.stream);
            if rank.number == 1 {
                if right {
                    edge(rank.stream, other, (&machine, 1));
                }
                copy(y, x, 4, other);
            }
            synchronize(rank.stream);
            synchronize(other);
        });
        match right {
            true => machine.assert_silent(),
            false => machine.assert_complains(&["race", "`ncclRecv`", "on device 1"]),
        }
    }
}

#[test]
fn what_is_sent_is_overwritten_without_a_wait() {
    let Some(machine) = Machine::alone() else { return };
    for right in [true, false] {
        ranks(&machine, UNSET, |rank| {
            let other = stream();
            let x = allocate(4, rank.stream);
            fill(x, 4, rank.stream);
            edge(rank.stream, other, (&machine, rank.number));
            rank.transfer(x, 4, rank.stream);
            if rank.number == 0 {
                if right {
                    edge(rank.stream, other, (&machine, 0));
                }
                fill(x, 4, other);
                synchronize(rank.stream);
                synchronize(other);
            } else {
                synchronize(rank.stream);
            }
        });
        match right {
            true => machine.assert_silent(),
            false => machine.assert_complains(&["race", "`ncclSend`", "on device 0"]),
        }
    }
}

#[test]
fn a_transfer_orders_what_is_before_the_send_with_what_is_after_the_receive() {
    let Some(machine) = Machine::alone() else { return };
    machine.enter(0);
    let both = stream();
    let kept = allocate(4, both);
    synchronize(both);
    ranks(&machine, UNSET, |rank| {
        let x = allocate(4, rank.stream);
        if rank.number == 0 {
            fill(kept, 4, rank.stream);
        }
        rank.transfer(x, 4, rank.stream);
        if rank.number == 1 {
            // Over memory of the other device, through the driver.
            let contexts = [0, 1].map(|number| {
                let device = result::device::get(number).expect("a device");
                // SAFETY: the device is there.
                unsafe { result::primary_ctx::retain(device) }.expect("a context")
            });
            // SAFETY: both are as large as the copy.
            let copied =
                unsafe { result::memcpy_peer_async(contexts[1], x, contexts[0], kept, 16, rank.stream) };
            copied.expect("a copy");
        }
        synchronize(rank.stream);
    });
    machine.assert_silent();
}

#[test]
fn a_group_on_two_streams_is_one_place_in_both() {
    let Some(machine) = Machine::alone() else { return };
    for grouped in [true, false] {
        ranks(&machine, UNSET, |rank| {
            let other = stream();
            let (x, y) = (allocate(4, rank.stream), allocate(4, other));
            fill(x, 4, rank.stream);
            fill(y, 4, other);
            // SAFETY: no arguments.
            unsafe {
                if grouped {
                    nccl::ncclGroupStart();
                }
                rank.transfer(x, 4, rank.stream);
                rank.transfer(y, 4, other);
                if grouped {
                    nccl::ncclGroupEnd();
                }
            }
            // Without an event, each stream goes on with the other's memory.
            fill(x, 4, other);
            synchronize(rank.stream);
            synchronize(other);
        });
        match grouped {
            true => machine.assert_silent(),
            false => machine.assert_complains(&["race"]),
        }
    }
}

#[test]
fn a_stream_of_another_device_is_refused() {
    let Some(machine) = Machine::alone() else { return };
    ranks(&machine, UNSET, |rank| {
        let x = allocate(4, rank.stream);
        rank.machine.enter(2);
        let there = stream();
        rank.machine.enter(rank.number);
        assert_eq!(rank.transfer(x, 4, there), ncclResult_t::ncclInvalidArgument);
        synchronize(rank.stream);
    });
}

#[test]
fn a_transfer_that_waits_takes_multiprocessors_from_products() {
    let Some(machine) = Machine::alone() else { return };
    for (blocks, expected) in [(UNSET, 132.0 / 100.0), (4, 132.0 / 128.0)] {
        ranks(&machine, blocks, |rank| {
            if rank.number == 1 {
                // The sender never comes.
                let x = allocate(4, rank.stream);
                rank.transfer(x, 4, rank.stream);
                // SAFETY: the stream is alive.
                let _ = unsafe { sys::cuStreamQuery(rank.stream) };
                assert_eq!(slowdown(1), expected);
                assert_eq!(slowdown(0), 1.0);
            }
        });
    }
}

#[test]
fn a_launch_waits_where_too_many_are_queued() {
    let Some(machine) = Machine::alone() else { return };
    let one = kernel(r#"extern "C" __global__ void one(float *x) { x[0] = 1.0f; }"#, "one");
    extern "C" fn note(argument: *mut c_void) {
        // SAFETY: it is the address of a number that outlives the stream's work.
        unsafe { *argument.cast::<bool>() = true };
    }
    let first = stream();
    let x = allocate(1, first);
    let mut reached = false;
    // SAFETY: the number outlives the work.
    let noted = unsafe { sys::cuLaunchHostFunc(first, Some(note), std::ptr::from_mut(&mut reached).cast()) };
    noted.result().expect("queued");
    for launches in 0..1024 {
        assert!(!reached, "after {launches} launches");
        launch(one, 1, first, &mut [x]).expect("a launch");
    }
    assert!(reached);
    machine.assert_silent();
}
