//! What a profiler is told of a step: a range for each action.

#![allow(unsafe_code, reason = "the emulator's loader")]

mod common;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use pipewright::id::Rank;

/// Names the file of ranges in the process that is profiled.
const RANGES: &str = "PIPEWRIGHT_EMULATOR_RANGES";

/// The names of ranges that began, by thread. Each ended before the next one of its thread began.
fn ranges(path: &Path) -> Vec<Vec<String>> {
    let text = std::fs::read_to_string(path).expect("a file");
    let mut threads: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in text.lines() {
        let [thread, domain, name] = line.splitn(3, ' ').collect::<Vec<_>>()[..] else {
            panic!("{line}");
        };
        assert_eq!(domain, "pipewright");
        threads.entry(thread.to_owned()).or_default().push(name.to_owned());
    }
    let began = threads.into_values().map(|names| {
        let pairs = names.chunks(2).map(|pair| {
            assert_eq!(pair.get(1).map(String::as_str), Some("-"), "{names:?}");
            pair[0].clone()
        });
        pairs.collect()
    });
    began.collect()
}

#[test]
fn the_ranges_of_a_step_are_its_schedule() {
    let Some(path) = std::env::var_os(RANGES) else {
        return profiled();
    };
    let mut pipeline = common::recipe(2, true, 4).pipeline(2, "zb-h1");
    pipeline.step().expect("a step");
    let schedule = pipeline.schedule();
    let actions = |rank| schedule.actions(Rank(rank)).iter().map(ToString::to_string).collect();
    let mut expected: Vec<Vec<String>> = (0..2).map(actions).collect();
    let mut told = ranges(path.as_ref());
    expected.sort();
    told.sort();
    assert_eq!(told, expected);
}

/// Runs the test again, in a process with a tool in a profiler's place.
fn profiled() {
    let emulator::Cuda::Emulated(folder) = emulator::start() else {
        return;
    };
    let ranges = tempfile::tempdir().expect("a folder");
    let file = ranges.path().join("ranges");
    let output = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "the_ranges_of_a_step_are_its_schedule", "--nocapture"])
        .env("NVTX_INJECTION64_PATH", folder.join("libnvtx_tool.so"))
        .env(RANGES, &file)
        .output()
        .expect("a process");
    assert!(output.status.success(), "{output:?}");
    assert!(file.exists(), "nothing was told");
}
