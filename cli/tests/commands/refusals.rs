use super::*;

/// Nothing was started: there is no run directory.
#[track_caller]
fn refused(args: &[&str], part: &str) {
    let place = Place::new();
    let said = place.run(args).refused();
    assert!(said.starts_with("error: ") && said.contains(part), "{said}");
    assert!(!place.path("runs").exists());
}

#[test]
fn configs_and_arguments() {
    refused(&["train", "none.toml"], "cannot read none.toml: ");
    refused(
        &["train", "my.toml", "--set", "model.dmi=8"],
        "--set: unknown key model.dmi: did you mean `dim`?",
    );
    refused(&["train", "my.toml", "--set", "model.heads=3"], "model.dim 16 is not divisible by 3 heads");
    refused(&["train", "my.toml", "--set", "pipeline.stages=9"], "pipeline.stages: 9 stages for 6 layers");
    refused(&["train", "my.toml", "--set", "pipeline.micro_batches=0"], "pipeline.micro_batches: is 0");
    refused(&["train", "my.toml", "--resume"], "there is no run in runs/small to resume");
    refused(&["train", "--resume", "--run-dir", "x"], "there is no run in x to resume");
    refused(&["train", "my.toml", "--zzz"], "unexpected argument '--zzz'");
}

#[test]
fn data() {
    refused(&["train", "my.toml", "--set", "data.path=none.txt"], "cannot read `none.txt`: ");
    refused(
        &["train", "my.toml", "--set", "data.seq=5000"],
        "`text.txt` is too short: of its 1800 tokens 1620",
    );
    refused(&["train", "my.toml", "--set", "model.vocab=100"], "is outside the model's vocabulary of 100");
}

#[test]
fn a_run_directory_that_exists() {
    let place = Place::new();
    fs::create_dir_all(place.path("runs/small")).unwrap();
    place.run(&["train", "my.toml", "--steps", "1"]).done();
    let said = place.run(&["train", "my.toml"]).refused();
    has(&said, &["the run directory runs/small exists: continue it with --resume, or name another"]);
    assert_eq!(place.steps("runs/small"), [0]);
}

#[test]
fn a_port_in_use() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let set = format!("metrics.listen={address}");
    refused(
        &["train", "my.toml", "--set", &set],
        &format!("metrics.listen: cannot serve metrics on {address}: "),
    );
}

#[test]
fn checkpoints_that_are_damaged_or_of_another_model() {
    let place = Place::new();
    place.run(&["train", "my.toml", "--steps", "2"]).done();
    let said = place.run(&["train", "my.toml", "--resume", "--set", "model.dim=32"]).refused();
    has(&said, &["has dimensions [", "model.safetensors"]);
    let said = place.run(&["train", "my.toml", "--resume", "--set", "model.layers=3"]).refused();
    has(&said, &["`h.2.", "is missing"]);
    let weights = place.path("runs/small/checkpoints/step-00000002/model.safetensors");
    let whole = fs::read(&weights).unwrap();
    fs::write(&weights, &whole[..whole.len() - 1]).unwrap();
    has(&place.run(&["train", "my.toml", "--resume"]).refused(), &["model.safetensors: not a whole file"]);
}

#[test]
fn ranks_that_may_open_too_few_files() {
    let place = Place::new();
    let mut command = Command::new("sh");
    let script = "ulimit -n 30; exec \"$0\" train my.toml --set pipeline.stages=6";
    command.args(["-c", script]).arg(cargo_bin("pipewright")).current_dir(place.path("."));
    let said = Run(command.output().unwrap()).refused();
    has(&said, &["raise the limits of threads and of open files"]);
    assert!(!said.contains("panicked"), "{said}");
}

#[test]
fn training_that_needs_more_memory_than_there_is() {
    let place = Place::new();
    let limited = |args: &str| {
        let program = cargo_bin("pipewright");
        let script = format!("ulimit -v 3000000; exec {} {args}", program.display());
        let run = Command::new("sh").args(["-c", &script]).current_dir(place.path(".")).output();
        Run(run.unwrap())
    };
    let many_rows = "my.toml --set pipeline.micro_batch_size=100000";
    for command in ["train", "profile"] {
        let said = limited(&format!("{command} {many_rows}")).refused();
        assert!(
            said.starts_with("error: --set: pipeline.micro_batch_size: training needs about ")
                && said.contains(" GiB of memory, and this process may use (ulimit -v) 2.86 GiB, of which ")
                && said.contains(" GiB is free: ")
                && said.contains("; lower it, recompute"),
            "{said}"
        );
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    let said = limited("train my.toml --set model.dim=8192").refused();
    has(&said, &["model: training needs about ", "make the model narrower or shallower"]);
    assert!(!place.path("runs").exists());
    let run = limited("train my.toml --steps 1").done().stdout();
    let rows: Vec<&str> = run.lines().filter(|line| line.starts_with("rank ")).collect();
    assert_eq!(rows.len(), 2, "{run}");
    has(&run, &[" in all, estimated\n"]);
}
