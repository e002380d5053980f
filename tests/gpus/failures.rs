//! Calls of CUDA that fail: one after the other, each of a small run. Nothing is left behind, nothing hangs,
//! and the error names the call.

use std::thread;
use std::time::Duration;

use emulator::{answer, tell};
use pipewright::fabric::World;

use super::*;
use crate::worlds::in_processes;

/// Set in the process whose calls fail.
const ALONE: &str = "PIPEWRIGHT_FAILING_ALONE";
/// How many calls lie between two that are tried.
const STRIDE: &str = "PIPEWRIGHT_FAILING_STRIDE";

/// How often it is looked for what is left, each 10 ms.
const PATIENCE: usize = 3000;

/// A perceptron with two layers, one for each rank.
fn small() -> Recipe {
    let data = RandomRows { rows: 3, width: 4, classes: 2 };
    let model = || Mlp { sizes: vec![4, 3, 2], dropout: 0.0, seed: 3 }.model();
    recipe_of(model, Arc::new(data), 2)
}

/// How the two ranks run. Two processes are threads here, with what processes have in common.
#[derive(Clone, Copy)]
enum Case {
    OneProcess,
    TwoProcesses,
    /// In one process.
    Offloading,
    /// In one process.
    StateOnHost,
}

/// Starts two ranks on two GPUs, trains a step, and ends them. The hash of the weights, or the error, of each
/// process.
fn run(case: Case) -> Vec<Result<String>> {
    let train = |world: Option<World>| {
        let places = [GPU, Device::Cuda(1)].map(|device| on(device, DType::F32));
        let schedule = match case {
            Case::OneProcess | Case::TwoProcesses | Case::StateOnHost => named("1f1b", 2, 4),
            Case::Offloading => offloading(named("gpipe", 2, 4)),
        };
        let builder = small().builder(schedule);
        let builder = builder.places(places.into()).state_on_host(matches!(case, Case::StateOnHost));
        let builder = match world {
            Some(world) => builder.world(world),
            None => builder,
        };
        let mut pipeline = builder.launch()?;
        pipeline.step()?;
        pipeline.weights_hash()
    };
    match case {
        Case::OneProcess | Case::Offloading | Case::StateOnHost => vec![train(None)],
        Case::TwoProcesses => in_processes(2, |world| train(Some(world))),
    }
}

/// The hash of a run in which nothing fails.
fn hash(case: Case) -> Result<String> {
    let hashes: Result<Vec<String>> = run(case).into_iter().collect();
    let mut hashes = hashes?;
    hashes.dedup();
    assert_eq!(hashes.len(), 1, "all processes have the same");
    Ok(hashes.remove(0))
}

/// What is there, once it stays for a while: threads give back what they had.
fn left() -> String {
    let (mut left, mut same) = (answer("pw_left"), 0);
    while same < 5 {
        thread::sleep(Duration::from_millis(10));
        let now = answer("pw_left");
        same = if now == left { same + 1 } else { 0 };
        left = now;
    }
    left
}

/// What is there besides `before`, once the threads that have ended have given back all they had. A slow
/// thread may have given back all of `before` too.
pub(crate) fn left_since(before: &str) -> Option<String> {
    // Longer than any machine needs, so that a leak ends as a message.
    for _ in 0..PATIENCE {
        let left = answer("pw_left");
        if left.is_empty() || left == before {
            return None;
        }
        thread::sleep(Duration::from_millis(10));
    }
    Some(answer("pw_left"))
}

/// Lets the `n`-th call of this function (`any`: of all) fail, and prints which it was. What is wrong with
/// that. `None` if there are fewer.
fn with_failure(case: Case, function: &str, n: u64, expected: &str) -> Option<Vec<String>> {
    let before = left();
    tell("pw_fail", &format!("{function}:{n}"));
    let ended = run(case);
    let call = answer("pw_failed");
    tell("pw_fail", "");
    if call.is_empty() {
        return None;
    }
    let mut wrong = Vec::new();
    let told = |ended: &Result<String>| ended.as_ref().map_or_else(ToString::to_string, Clone::clone);
    let told = ended.iter().map(told).collect::<Vec<_>>().join("; ");
    // cuBLASLt has no text of its own for an error.
    let named = told.contains(&format!("let {call} fail")) || told.contains("CUBLAS_STATUS");
    if ended.iter().flatten().any(|hash| hash != expected) {
        wrong.push("the numbers are others".to_owned());
    }
    if ended.iter().any(Result::is_err) && !named {
        wrong.push(format!("the error does not name it: {told}"));
    }
    // A member whose partner could not even begin to connect waits in NCCL, with its memory, until the
    // process ends.
    let may_wait = matches!(case, Case::TwoProcesses) && told.contains("entering a device's context");
    let left = if may_wait { None } else { left_since(&before) };
    wrong.extend(left.map(|left| format!("there are still {left}, not {before}")));
    match hash(case) {
        Ok(hash) if hash == expected => {}
        other => wrong.push(format!("the next run: {other:?}")),
    }
    wrong.iter_mut().for_each(|what| *what = format!("call {n}, {call}: {what}"));
    println!("call {n}, {call}: {told}");
    Some(wrong)
}

#[test]
fn any_call_of_a_step_may_fail() {
    calls_may_fail(Case::OneProcess, ANY, "any_call_of_a_step_may_fail", 37);
}

#[test]
fn any_call_of_a_step_that_offloads_may_fail() {
    calls_may_fail(Case::Offloading, ANY, "any_call_of_a_step_that_offloads_may_fail", 41);
}

#[test]
fn any_call_of_a_step_with_state_on_the_host_may_fail() {
    let test = "any_call_of_a_step_with_state_on_the_host_may_fail";
    calls_may_fail(Case::StateOnHost, ANY, test, 43);
}

/// Memory that another device may still read is not given back.
#[test]
fn any_wait_for_an_event_may_fail() {
    calls_may_fail(Case::StateOnHost, "cuEventSynchronize", "any_wait_for_an_event_may_fail", 1);
}

/// Threads that only give memory back make this call too. Nobody can be told of their failure.
#[test]
fn any_device_may_fail_to_be_entered() {
    calls_may_fail(Case::OneProcess, ENTER, "any_device_may_fail_to_be_entered", 1);
}

#[test]
fn any_device_of_a_step_that_offloads_may_fail_to_be_entered() {
    let test = "any_device_of_a_step_that_offloads_may_fail_to_be_entered";
    calls_may_fail(Case::Offloading, ENTER, test, 1);
}

/// Which call is the n-th depends on the processes' order too. All are tried in many runs.
#[test]
fn any_call_of_a_step_in_two_processes_may_fail() {
    calls_may_fail(Case::TwoProcesses, ANY, "any_call_of_a_step_in_two_processes_may_fail", 61);
}

/// What a failed copy used must not be freed by a rank: CUDA would wait for the device, which waits for the
/// other process.
#[test]
fn any_copy_to_a_gpu_in_two_processes_may_fail() {
    let test = "any_copy_to_a_gpu_in_two_processes_may_fail";
    calls_may_fail(Case::TwoProcesses, "cuMemcpyHtoDAsync_v2", test, 1);
}

/// The other process is told, and does not wait until its deadline.
#[test]
fn any_call_of_nccl_in_two_processes_may_fail() {
    let test = "any_call_of_nccl_in_two_processes_may_fail";
    let functions = ["ncclCommInitRankConfig", "ncclSend", "ncclRecv", "ncclGroupEnd"];
    calls_of_each_may_fail(Case::TwoProcesses, &functions, test, 2);
}

/// The functions that fail: all.
const ANY: &str = "any";
/// The function that makes a device's context the current one of a thread.
const ENTER: &str = "cuCtxSetCurrent";

/// Lets every `stride`-th call of a function fail in a run, in a process where this test is alone.
fn calls_may_fail(case: Case, function: &str, test: &str, stride: u64) {
    calls_of_each_may_fail(case, &[function], test, stride);
}

fn calls_of_each_may_fail(case: Case, functions: &[&str], test: &str, stride: u64) {
    if !matches!(emulator::start(), emulator::Cuda::Emulated(_)) {
        return;
    }
    if env::var_os(ALONE).is_none() {
        return in_a_process_of_its_own(&format!("failures::{test}"), ALONE, "");
    }
    let stride = env::var(STRIDE).map_or(stride, |stride| stride.parse().expect("a number"));
    let expected = hash(case).expect("nothing fails");
    assert_eq!(left_since(""), None, "after a run");
    let mut wrong = Vec::new();
    for function in functions {
        let (mut tried, mut missing) = (0, 0);
        // How many calls there are depends on the order of the threads.
        for n in (0..).map(|index| 1 + index * stride) {
            match with_failure(case, function, n, &expected) {
                Some(more) => {
                    wrong.extend(more);
                    tried += 1;
                }
                None => missing += 1,
            }
            if missing == 3 {
                break;
            }
        }
        assert!(tried > 0, "{function} is not called");
    }
    assert_eq!(wrong, [""; 0]);
}
