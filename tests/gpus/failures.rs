//! Calls of CUDA that fail: one after the other, each of a small run. Nothing is left behind, nothing hangs,
//! and the error names the call.

use std::env;
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use pipewright::Result;
use pipewright::stages::models::Mlp;
use pipewright::stages::{DType, Device};

use crate::common::{RandomRows, Recipe, recipe_of};
use crate::emulator::{self, answer, tell};
use crate::training::{GPU, named, on};

/// Set in the process whose calls fail: how many calls lie between two that are tried.
const STRIDE: &str = "PIPEWRIGHT_FAILING_STRIDE";

/// How often it is looked for what is left, each 10 ms.
const PATIENCE: usize = 3000;

/// A perceptron with two layers, one for each rank.
fn small() -> Recipe {
    let data = RandomRows {
        rows: 3,
        width: 4,
        classes: 2,
    };
    let model = || {
        Mlp {
            sizes: vec![4, 3, 2],
            dropout: 0.0,
            seed: 3,
        }
        .model()
    };
    recipe_of(model, Arc::new(data), 2)
}

/// Starts two ranks on two GPUs, trains a step, and ends them. The hash of the weights.
fn run() -> Result<String> {
    let places = [GPU, Device::Cuda(1)].map(|device| on(device, DType::F32));
    let builder = small().builder(named("1f1b", 2)).expect("the sizes fit");
    let mut pipeline = builder.places(places.into()).launch()?;
    pipeline.step()?;
    pipeline.weights_hash()
}

/// What is there besides `before`, once the threads that have ended have given back all they had.
fn left_since(before: &str) -> Option<String> {
    // Longer than any machine needs, so that a leak ends as a message.
    for _ in 0..PATIENCE {
        if answer("pw_left") == before {
            return None;
        }
        thread::sleep(Duration::from_millis(10));
    }
    Some(answer("pw_left"))
}

/// Lets the `n`-th call fail. What is wrong with that, and which call it was. `None` if there are fewer.
fn with_failure(n: u64, expected: &str) -> Option<(String, Vec<String>)> {
    let before = answer("pw_left");
    tell("pw_fail", &format!("any:{n}"));
    let ended = run();
    let call = answer("pw_failed");
    tell("pw_fail", "");
    if call.is_empty() {
        return None;
    }
    let mut wrong = Vec::new();
    let told = ended.as_ref().map_or_else(ToString::to_string, Clone::clone);
    // cuBLASLt has no text of its own for an error.
    let named = told.contains(&format!("let {call} fail")) || told.contains("CUBLAS_STATUS");
    match ended {
        Ok(hash) if hash != expected => wrong.push("the numbers are others".to_owned()),
        Err(_) if !named => wrong.push(format!("the error does not name it: {told}")),
        _ => {}
    }
    wrong.extend(left_since(&before).map(|left| format!("there are still {left}, not {before}")));
    match run() {
        Ok(hash) if hash == expected => {}
        other => wrong.push(format!("the next run: {other:?}")),
    }
    wrong
        .iter_mut()
        .for_each(|what| *what = format!("call {n}, {call}: {what}"));
    Some((format!("{call}: {told}"), wrong))
}

#[test]
fn any_call_of_a_step_may_fail() {
    if !matches!(emulator::start(), emulator::Cuda::Emulated(_)) {
        return;
    }
    let Ok(stride) = env::var(STRIDE) else {
        return in_a_process_of_its_own();
    };
    let expected = run().expect("nothing fails");
    assert_eq!(left_since(""), None, "after a run");
    let stride: u64 = stride.parse().expect("a number");
    // All of them need another stride, 1.
    let (told, wrong): (Vec<_>, Vec<_>) = (0..)
        .map_while(|index| with_failure(1 + index * stride, &expected))
        .unzip();
    println!("{told:#?}");
    assert!(told.len() > 5, "few calls");
    assert_eq!(wrong.concat(), [""; 0]);
}

/// Calls fail in a whole process, so other tests must not be there.
fn in_a_process_of_its_own() {
    let output = Command::new(env::current_exe().expect("this program"))
        .args(["--exact", "failures::any_call_of_a_step_may_fail", "--nocapture"])
        .env(STRIDE, "37")
        .output()
        .expect("a process");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{}\n{}",
        text(&output.stdout),
        text(&output.stderr)
    );
}
