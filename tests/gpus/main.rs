//! Training on GPUs, or on emulated ones. It learns what the CPU learns, with the same bits for every cut.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/divided_models.rs"]
mod divided_models;
#[path = "../common/failing.rs"]
mod failing;
#[path = "../common/has.rs"]
mod has;
#[path = "../common/mixtral.rs"]
mod mixtral;
#[path = "../common/plain.rs"]
mod plain;
#[path = "../common/text.rs"]
mod text;
#[path = "../common/worlds.rs"]
mod worlds;

mod beside;
mod convolutions;
mod failures;
mod host_state;
mod offload;
mod orders;
mod profile;
mod quantised;
mod refusals;
mod replicas;
mod restarts;
mod shards;
mod training;
mod wires;
mod writing;

use std::env;
use std::process::Command;
use std::sync::Arc;

use common::*;
use has::has;
use offload::offloading;
use pipewright::schedule::Schedule;
use pipewright::stages::layers::{Layout, Linear, Relu};
use pipewright::stages::loss::CrossEntropy;
use pipewright::stages::models::{LayerSpec, Mlp, Model};
use pipewright::stages::{DType, Device, Init, Place, devices};
use pipewright::{Pipeline, Result, StepReport};
use training::{GPU, assert_close, on, train};

/// Runs one case of a test of this program in a process of its own. The test finds the case in the variable
/// `alone`.
fn in_a_process_of_its_own(test: &str, alone: &str, case: &str) {
    let output = Command::new(env::current_exe().expect("this program"))
        .args(["--exact", test, "--nocapture"])
        .env(alone, case)
        .output()
        .expect("a process");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
}
