//! `scripts/gpu_check.sh`, with programs in the place of those that use a GPU.

#![cfg(unix)]

use std::env;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// What stands in for `pipewright`, which says that there is a GPU, and for a tool, in a folder of binaries.
const PROGRAMS: [(&str, &str); 2] = [
    ("pipewright", r#"echo '{"library_path": null, "device": "cuda:0"}'"#),
    ("compute-sanitizer", "sleep $TOOL_TAKES"),
];

/// The parts that use that tool.
const PARTS: [&str; 3] = [
    "compute-sanitizer, memory: attention",
    "compute-sanitizer, races: attention",
    "compute-sanitizer, memory: kernels",
];

/// What a check of those parts prints, and its exit status.
fn check(limit: &str, takes: &str, arguments: &[&str]) -> (String, Option<i32>) {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name| folder.path().join(name);
    fs::write(at("built-at"), ROOT).expect("a file");
    for (name, script) in PROGRAMS {
        fs::write(at(name), format!("#!/bin/sh\n{script}\n")).expect("a file");
        fs::set_permissions(at(name), Permissions::from_mode(0o755)).expect("our own file");
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let path = env::split_paths(&path);
    let path = env::join_paths([folder.path().to_owned()].into_iter().chain(path)).expect("paths");
    let output = Command::new(Path::new(ROOT).join("scripts/gpu_check.sh"))
        .arg("--binaries")
        .arg(folder.path())
        .args(["--only", "sanitize"])
        .args(arguments)
        .env("PATH", path)
        .env("LIMIT", limit)
        .env("TOOL_TAKES", takes)
        .output()
        .expect("it starts");
    let printed = [output.stdout, output.stderr].concat();
    (String::from_utf8_lossy(&printed).into_owned(), output.status.code())
}

/// The rows of the table that say this.
fn rows<'a>(text: &'a str, result: &str) -> Vec<&'a str> {
    let rows = text.lines().filter_map(|line| line.split_once(result));
    rows.map(|(name, _)| name.trim_end()).collect()
}

#[test]
fn parts_without_time_are_told_and_a_later_call_goes_on_with_them() {
    let (text, status) = check("520", "0", &[]);
    assert_eq!((rows(&text, " ok "), status), (PARTS.to_vec(), Some(0)), "{text}");
    // The first part is stopped in the middle, if it begins at all.
    let (text, status) = check("5", "60", &[]);
    assert_eq!((rows(&text, " left out "), status), (PARTS.to_vec(), Some(1)), "{text}");
    let on = format!("--only sanitize --from '{}'", PARTS[0]);
    assert!(text.lines().any(|line| line.ends_with(&on)), "{text}");
    let (text, status) = check("520", "0", &["--from", PARTS[1]]);
    assert_eq!((rows(&text, " ok "), status), (PARTS[1..].to_vec(), Some(0)), "{text}");
}

#[test]
fn a_call_that_goes_on_with_no_part_fails() {
    let (text, status) = check("520", "0", &["--from", "a part"]);
    assert!(text.contains("no part is called 'a part'") && status == Some(1), "{text}");
}

#[test]
fn every_test_of_cuda_is_in_a_list() {
    let script = fs::read_to_string(Path::new(ROOT).join("scripts/gpu_check.sh")).expect("the script");
    let tests = fs::read_dir(Path::new(ROOT).join("stages/tests")).expect("the tests");
    for test in tests {
        let path = test.expect("an entry").path();
        let name = path.file_stem().and_then(|name| name.to_str()).expect("a name");
        if name.starts_with("cuda_") {
            let line = format!("\n  pipewright-stages/{name}\n");
            assert!(script.contains(&line), "scripts/gpu_check.sh has no {name}");
        }
    }
}
