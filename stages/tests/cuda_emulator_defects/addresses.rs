//! The addresses that kernels really use. A process of its own finds them, because its kernels are compiled
//! otherwise.

use std::process::Command;

use crate::machine::{Machine, allocate, edge, fill, kernel, launch, stream};

pub(crate) const ADDRESSES: &str = "PIPEWRIGHT_EMULATOR_ADDRESSES";

const KERNELS: &str = r#"
extern "C" __global__ void even(float *x) { x[2 * threadIdx.x] = 1.0f; }
extern "C" __global__ void odd(float *x) { x[2 * threadIdx.x + 1] = 1.0f; }
extern "C" __global__ void beyond(const float *x, float *y) { y[threadIdx.x] = x[threadIdx.x + 1]; }
extern "C" __global__ void pointers(float *const *table) { table[0][threadIdx.x] = 1.0f; }
struct alignas(16) Quad { float x[4]; };
extern "C" __global__ void wide(Quad *x) { *x = Quad{}; }
"#;

/// Runs the second half of a test in a process of its own. True in that process.
pub(crate) fn watched(test: &str) -> bool {
    if std::env::var_os(ADDRESSES).is_some() {
        return true;
    }
    let output = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", test, "--nocapture"])
        .env(ADDRESSES, "1")
        .output()
        .expect("a process");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    false
}

#[test]
fn uses_of_different_numbers_are_no_race() {
    let Some(machine) = Machine::alone() else { return };
    if !watched("addresses::uses_of_different_numbers_are_no_race") {
        return;
    }
    let [even, odd] = ["even", "odd"].map(|name| kernel(KERNELS, name));
    for other in [odd, even] {
        let (first, second) = (stream(), stream());
        let x = allocate(8, first);
        edge(first, second, (&machine, 0));
        let _ = launch(even, 4, first, &mut [x]);
        let _ = launch(other, 4, second, &mut [x]);
        match other == odd {
            true => machine.assert_silent(),
            false => machine.assert_complains(&["race", "`even`", "bytes 0 to 4"]),
        }
    }
}

#[test]
fn a_read_outside_an_allocation_is_found() {
    let Some(machine) = Machine::alone() else { return };
    if !watched("addresses::a_read_outside_an_allocation_is_found") {
        return;
    }
    let (beyond, first) = (kernel(KERNELS, "beyond"), stream());
    for threads in [3, 4] {
        let (x, y) = (allocate(4, first), allocate(4, first));
        fill(x, 4, first);
        let _ = launch(beyond, threads, first, &mut [x, y]);
        match threads {
            3 => machine.assert_silent(),
            _ => machine.assert_complains(&["`beyond` on stream", "reads", "not inside one allocation"]),
        }
    }
}

#[test]
fn pointers_in_memory_are_followed() {
    let Some(machine) = Machine::alone() else { return };
    if !watched("addresses::pointers_in_memory_are_followed") {
        return;
    }
    let (pointers, first, second) = (kernel(KERNELS, "pointers"), stream(), stream());
    let (x, table) = (allocate(4, first), allocate(2, first));
    // SAFETY: there is room for an address.
    unsafe { cudarc::driver::result::memcpy_htod_async(table, &[x], first) }.expect("a copy");
    edge(first, second, (&machine, 0));
    let _ = launch(pointers, 4, first, &mut [table]);
    fill(x, 4, second);
    machine.assert_complains(&["race", "`pointers`", "`cuMemsetD8Async`"]);
}

#[test]
fn an_access_to_sixteen_bytes_is_aligned() {
    let Some(machine) = Machine::alone() else { return };
    if !watched("addresses::an_access_to_sixteen_bytes_is_aligned") {
        return;
    }
    let (wide, first) = (kernel(KERNELS, "wide"), stream());
    for offset in [0, 8] {
        let x = allocate(8, first);
        launch(wide, 1, first, &mut [x + offset]).expect("a launch");
        // SAFETY: the stream is alive.
        let ended = unsafe { cudarc::driver::result::stream::synchronize(first) };
        assert_eq!(ended.is_ok(), offset == 0);
        machine.assert_silent();
    }
}
