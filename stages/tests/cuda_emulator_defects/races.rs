//! Uses of memory that nothing orders. They are found in every order of the streams.

use std::thread;

use cudarc::driver::result;
use cudarc::driver::sys::{self, CUstream};

use crate::machine::{Machine, allocate, copy, edge, event, fill, free, kernel, launch, stream, synchronize};

const ORDERS: [&str; 5] = ["late", "eager", "1", "2", "3"];

/// Two streams of device 0.
fn two() -> (CUstream, CUstream) {
    (stream(), stream())
}

#[test]
fn a_read_on_another_stream_without_a_wait() {
    let Some(machine) = Machine::alone() else { return };
    for order in ORDERS {
        machine.order(order);
        for right in [false, true] {
            let (first, second) = two();
            let (x, y) = (allocate(4, first), allocate(4, second));
            fill(x, 4, first);
            if right {
                edge(first, second, (&machine, 0));
            }
            copy(y, x, 4, second);
            if right {
                machine.assert_silent();
            } else {
                machine.assert_complains(&[
                    "race on allocation",
                    "of 16 bytes on device 0",
                    "`cuMemcpyDtoDAsync` on stream",
                    "of device 0",
                    "which reads its bytes 0 to 16",
                ]);
            }
        }
    }
}

#[test]
fn a_write_over_what_another_stream_still_reads() {
    let Some(machine) = Machine::alone() else { return };
    for order in ORDERS {
        machine.order(order);
        for right in [false, true] {
            let (first, second) = two();
            let (x, y) = (allocate(4, first), allocate(4, second));
            fill(x, 4, first);
            edge(first, second, (&machine, 0));
            copy(y, x, 4, second);
            if right {
                edge(second, first, (&machine, 0));
            }
            fill(x, 4, first);
            match right {
                true => machine.assert_silent(),
                false => machine.assert_complains(&["race", "`cuMemsetD8Async`", "`cuMemcpyDtoDAsync`"]),
            }
        }
    }
}

#[test]
fn a_wait_is_for_the_record_before_it() {
    let Some(machine) = Machine::alone() else { return };
    let (first, second) = two();
    let (x, y, done) = (allocate(1, first), allocate(1, second), event());
    fill(x, 1, first);
    // SAFETY: all are alive.
    unsafe {
        result::event::record(done, first).expect("a record");
        sys::cuStreamWaitEvent(second, done, 0).result().expect("a wait");
    }
    copy(y, x, 1, second);
    edge(second, first, (&machine, 0));
    fill(x, 1, first);
    // SAFETY: both are alive.
    unsafe { result::event::record(done, first) }.expect("a record");
    copy(y, x, 1, second);
    machine.assert_complains(&["race", "`cuMemcpyDtoDAsync`", "`cuMemsetD8Async`"]);
}

#[test]
fn an_order_may_go_through_a_third_stream() {
    let Some(machine) = Machine::alone() else { return };
    for device in [0, 1] {
        let (first, last) = two();
        let x = allocate(4, first);
        fill(x, 4, first);
        machine.enter(device);
        let between = stream();
        edge(first, between, (&machine, 0));
        edge(between, last, (&machine, device));
        machine.enter(0);
        fill(x, 4, last);
        machine.assert_silent();
    }
}

#[test]
fn memory_that_the_stream_has_not_allocated_yet() {
    let Some(machine) = Machine::alone() else { return };
    for order in ORDERS {
        machine.order(order);
        let (first, second) = two();
        let x = allocate(4, first);
        fill(x, 4, second);
        machine.assert_complains(&["race", "`cuMemAllocAsync`", "`cuMemsetD8Async`"]);
    }
}

#[test]
fn memory_that_another_stream_frees() {
    let Some(machine) = Machine::alone() else { return };
    for order in ORDERS {
        machine.order(order);
        for right in [false, true] {
            let (first, second) = two();
            let (x, y) = (allocate(4, first), allocate(4, second));
            fill(x, 4, first);
            edge(first, second, (&machine, 0));
            copy(y, x, 4, second);
            if right {
                edge(second, first, (&machine, 0));
            }
            free(x, first);
            match right {
                true => machine.assert_silent(),
                false => machine.assert_complains(&["on device 0", "of 16 bytes", "`cuMemcpyDtoDAsync`"]),
            }
        }
    }
}

#[test]
fn memory_that_the_host_frees_before_it_has_waited() {
    let Some(machine) = Machine::alone() else { return };
    for right in [false, true] {
        let first = stream();
        let x = allocate(4, first);
        fill(x, 4, first);
        if right {
            synchronize(first);
        } else {
            machine.order("eager");
            fill(x, 4, first);
        }
        // SAFETY: it was allocated above.
        let freed = unsafe { result::free_sync(x) };
        assert_eq!(freed.is_ok(), right);
        match right {
            true => machine.assert_silent(),
            false => machine.assert_complains(&["the host frees it", "`cuMemsetD8Async`"]),
        }
    }
}

#[test]
fn a_write_after_the_memory_was_freed() {
    let Some(machine) = Machine::alone() else { return };
    let (first, second) = two();
    let x = allocate(4, first);
    edge(first, second, (&machine, 0));
    fill(x, 4, second);
    free(x, first);
    synchronize(first);
    machine.assert_complains(&["use of freed memory", "`cuMemsetD8Async`"]);
}

#[test]
fn a_write_past_the_end_of_memory() {
    let Some(machine) = Machine::alone() else { return };
    let (beyond, first) = (kernel(COPY, "beyond"), stream());
    let x = allocate(5, first);
    launch(beyond, 1, first, &mut [x]).expect("a launch");
    free(x, first);
    machine.assert_complains(&["past the end of an allocation of 20 bytes"]);
}

#[test]
fn a_copy_between_devices_that_does_not_wait() {
    let Some(machine) = Machine::alone() else { return };
    for right in [false, true] {
        machine.enter(1);
        let there = stream();
        let to = allocate(4, there);
        machine.enter(0);
        let here = stream();
        let from = allocate(4, here);
        fill(from, 4, here);
        if right {
            edge(here, there, (&machine, 0));
        }
        machine.enter(1);
        let contexts = [0, 1].map(|device| {
            let device = result::device::get(device).expect("a device");
            // SAFETY: the device is there.
            unsafe { result::primary_ctx::retain(device) }.expect("a context")
        });
        // SAFETY: both are as large as the copy.
        let _ = unsafe { result::memcpy_peer_async(contexts[1], to, contexts[0], from, 16, there) };
        match right {
            true => machine.assert_silent(),
            false => {
                machine.assert_complains(&["on device 0", "`cuMemcpyPeerAsync` on stream", "of device 1"])
            }
        }
    }
}

const COPY: &str = r#"
extern "C" __global__ void copied(float *y, const float *x) { y[threadIdx.x] = x[threadIdx.x]; }
extern "C" __global__ void beyond(float *x) { x[5] = 1.0f; }
struct Both { float *y; const float *x; };
extern "C" __global__ void copied_by_both(const __grid_constant__ Both both) {
    both.y[threadIdx.x] = both.x[threadIdx.x];
}
"#;

#[test]
fn an_address_inside_an_argument() {
    let Some(machine) = Machine::alone() else { return };
    let copied = kernel(COPY, "copied_by_both");
    for order in ORDERS {
        machine.order(order);
        for right in [false, true] {
            let (first, second) = two();
            let (x, y) = (allocate(4, first), allocate(4, second));
            fill(x, 4, first);
            if right {
                edge(first, second, (&machine, 0));
            }
            let _ = launch(copied, 4, second, &mut [y, x]);
            match right {
                true => machine.assert_silent(),
                false => machine.assert_complains(&["race", "`copied_by_both`", "`cuMemsetD8Async`"]),
            }
        }
    }
}

#[test]
fn kernels_read_what_they_may_not_write_and_may_write_the_rest() {
    let Some(machine) = Machine::alone() else { return };
    let copied = kernel(COPY, "copied");
    for both_read in [true, false] {
        let (first, second) = two();
        let (x, y, z) = (allocate(4, first), allocate(4, first), allocate(4, first));
        fill(x, 4, first);
        edge(first, second, (&machine, 0));
        let _ = launch(copied, 4, first, &mut [y, x]);
        let _ = launch(copied, 4, second, &mut [if both_read { z } else { y }, x]);
        match both_read {
            true => machine.assert_silent(),
            false => machine.assert_complains(&["`copied` on stream", "which writes its bytes 0 to 16"]),
        }
    }
}

#[test]
fn a_thread_knows_what_the_threads_that_ended_before_have_waited_for() {
    let Some(machine) = Machine::alone() else { return };
    for waits in [true, false] {
        let first = stream() as usize;
        let x = allocate(4, first as CUstream);
        let context = result::ctx::get_current().expect("a context").expect("a context") as usize;
        let other = thread::spawn(move || {
            // SAFETY: the context is never released.
            unsafe { result::ctx::set_current(context as _) }.expect("a context");
            fill(x, 4, first as CUstream);
            if waits {
                synchronize(first as CUstream);
            }
        });
        other.join().expect("a thread");
        fill(x, 4, stream());
        match waits {
            true => machine.assert_silent(),
            false => machine.assert_complains(&["race", "`cuMemsetD8Async`"]),
        }
    }
}

#[test]
fn host_memory_that_changes_while_a_copy_is_queued() {
    let Some(machine) = Machine::alone() else { return };
    for right in [true, false] {
        let first = stream();
        let x = allocate(4, first);
        // SAFETY: the memory is as large as what is written and copied.
        unsafe {
            let host = result::malloc_host(16, 0).expect("memory").cast::<f32>();
            host.write_bytes(0, 4);
            let slice = std::slice::from_raw_parts(host, 4);
            result::memcpy_htod_async(x, slice, first).expect("a copy");
            if right {
                synchronize(first);
            }
            host.write(1.0);
        }
        match right {
            true => machine.assert_silent(),
            false => machine.assert_complains(&["the host changed 16 bytes", "a copy on stream"]),
        }
    }
}

#[test]
fn a_product_beside_a_write_of_its_operand() {
    use crate::product::{PLAIN, multiply, prepare};
    let Some(machine) = Machine::alone() else { return };
    let (first, second) = two();
    let (_, buffers) = prepare(&PLAIN, first);
    edge(first, second, (&machine, 0));
    multiply(&PLAIN, &buffers, first, 0).expect("queued");
    fill(buffers.a, 1, second);
    machine.assert_complains(&["`cublasLtMatmul`", "`cuMemsetD8Async`"]);
}
