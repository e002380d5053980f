//! The command, where a run belongs to a program that builds its model in Rust.

use std::process::Command;

use assert_cmd::cargo::cargo_bin;

use super::*;

#[test]
fn commands_say_that_only_the_program_knows_the_model_and_the_page_needs_no_model() {
    let place = Place::new();
    place.train(2);
    let call = |args: &[&str]| {
        let mut command = Command::new(cargo_bin("pipewright"));
        command.current_dir(place.0.path()).args(args).output().unwrap()
    };
    for args in [
        &["evaluate", "run"][..],
        &["sample", "run"],
        &["export", "run", "model"],
    ] {
        let output = call(args);
        assert_eq!(
            String::from_utf8(output.stderr).unwrap(),
            "error: run/checkpoints/step-00000002 has no config that says what the model is: it was saved by \
             a program that builds its model in Rust. Only that program can load it (with `Pipeline::load`) \
             and then evaluate it, write text with it or save its weights\n"
        );
        assert_eq!(output.status.code(), Some(2), "{args:?}");
    }
    assert!(!place.0.path().join("model").exists());
    let output = call(&["report", "run"]);
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "run/report.html\n");
}
