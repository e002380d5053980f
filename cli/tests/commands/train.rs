use super::*;

#[test]
fn a_run_leaves_its_config_numbers_picture_and_checkpoints() {
    let place = Place::new();
    let run = place.run(&["train", "my.toml", "--set", "checkpoint.keep=2"]).done();
    let stdout = run.stdout();
    for part in [
        "text.txt`: 1800 bytes, the last 180 for validation",
        "stages 2, schedule 1f1b",
        "step      5  loss ",
    ] {
        has(&stdout, &[part]);
    }
    has(&stdout, &["validation after 3 steps: loss ", "validation after 6 steps"]);
    assert_eq!(place.steps("runs/small"), [0, 1, 2, 3, 4, 5]);
    assert_eq!(place.checkpoints("runs/small"), ["step-00000004", "step-00000006"]);
    has(&place.text("runs/small/config.toml"), &["keep = 2", "clip = 1.0"]);
    let picture = place.text("runs/small/loss.svg");
    for part in ["<svg", "validation", "loss (nats per token)"] {
        assert!(picture.contains(part), "{part}");
    }
}

#[test]
fn without_a_config_the_built_in_text_is_trained_on_in_any_folder() {
    let place = Place::empty();
    let small = ["model.dim=16", "data.seq=16", "pipeline.micro_batches=2"];
    let run = place.run_with(&["train", "--steps", "1"], &small).done();
    has(&run.stdout(), &["`built-in text`"]);
    assert!(place.path("runs/first/checkpoints/step-00000001").is_dir());
}

#[test]
fn a_line_of_numbers_has_every_field() {
    let place = Place::new();
    place.run(&["train", "my.toml", "--run-dir", "here"]).done();
    let line = &place.lines("here")[2];
    for field in [
        "loss",
        "grad_norm",
        "lr",
        "seconds",
        "tokens_per_second",
        "bubble",
        "accuracy",
        "perplexity",
        "validation_loss",
        "validation_accuracy",
        "validation_perplexity",
    ] {
        assert!(line[field].is_f64(), "{field} in {line}");
    }
    for before in ["", "validation_"] {
        let [loss, perplexity] = ["loss", "perplexity"].map(|name| line[format!("{before}{name}")].as_f64());
        assert_eq!(loss.map(f64::exp), perplexity);
    }
    assert_eq!(line["tokens"], 96);
    assert_eq!(line["peak_bytes"].as_array().unwrap().len(), 2);
    assert!(place.lines("here")[1].get("validation_loss").is_none());
}

#[test]
fn the_same_weights_on_any_stages_and_schedule_and_after_resuming_on_others() {
    let place = Place::new();
    let whole = place.run(&["train", "my.toml", "--weights-hash"]).done().hash();
    for (stages, schedule) in [("1", "gpipe"), ("4", "1f1b"), ("3", "gpipe")] {
        let folder = format!("at-{stages}");
        let sets = [format!("pipeline.stages={stages}"), format!("pipeline.schedule={schedule}")];
        let args = ["train", "my.toml", "--weights-hash", "--run-dir", &folder];
        assert_eq!(place.run_with(&args, &sets).done().hash(), whole, "{stages} {schedule}");
    }
    place.run(&["train", "my.toml", "--run-dir", "two", "--steps", "3"]).done();
    assert_eq!(place.checkpoints("two"), ["step-00000002", "step-00000003"]);
    let resume = ["train", "--resume", "--run-dir", "two", "--set", "pipeline.stages=4", "--weights-hash"];
    let resumed = place.run(&resume).done();
    has(&resumed.stdout(), &["resumed after 3 steps"]);
    assert_eq!(resumed.hash(), whole);
    assert_eq!(place.steps("two"), [0, 1, 2, 3, 4, 5]);
    let again = place.run(&resume).done();
    assert_eq!((again.hash(), place.steps("two").len()), (whole, 6));
}

#[test]
fn what_is_recomputed_changes_no_weight_and_may_change_on_the_way() {
    let place = Place::new();
    let whole = place.run(&["train", "my.toml", "--weights-hash"]).done().hash();
    let first = ["train", "my.toml", "--run-dir", "some", "--steps", "3"];
    let full = ["--set", "pipeline.recompute=full"];
    place.run(&[&first[..], &full].concat()).done();
    let second = ["train", "--resume", "--run-dir", "some", "--weights-hash"];
    let mixed = ["--set", "pipeline.recompute=[\"selective\", \"none\"]"];
    let resumed = place.run(&[&second[..], &mixed].concat()).done();
    assert_eq!(resumed.hash(), whole);
    assert!(!resumed.stdout().contains("changed"), "{}", resumed.stdout());
}

#[test]
fn a_killed_run_resumes_on_other_stages_and_has_every_step_once() {
    let place = Place::new();
    let running = place.start(&[]);
    running.kill();
    let newest = place.checkpoints("runs/small").pop().unwrap();
    let done: u64 = newest.strip_prefix("step-").unwrap().parse().unwrap();
    let steps = (done + 3).to_string();
    let resume = ["train", "my.toml", "--resume", "--steps", &steps, "--weights-hash"];
    let resumed = place.run_with(&resume, &["pipeline.stages=3"]).done();
    has(&resumed.stdout(), &[&format!("resumed after {done} steps")]);
    assert_eq!(place.steps("runs/small"), (0..done + 3).collect::<Vec<_>>());
    let whole = ["train", "my.toml", "--run-dir", "whole", "--steps", &steps, "--weights-hash"];
    assert_eq!(place.run(&whole).done().hash(), resumed.hash());
}

/// Whether a checkpoint is being written.
fn writes(checkpoints: &Path) -> bool {
    let name = |entry: std::io::Result<fs::DirEntry>| entry.is_ok_and(|entry| is_partial(&entry.path()));
    fs::read_dir(checkpoints).is_ok_and(|entries| entries.into_iter().any(name))
}

fn is_partial(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "partial")
}

#[test]
fn a_run_that_is_killed_again_and_again_while_it_writes_has_whole_checkpoints_only() {
    let place = Place::new();
    let often = ["--set", "checkpoint.every=1", "--set", "checkpoint.keep=4"];
    let mut running = place.start(&often);
    let mut done = 0;
    for _ in 0..8 {
        wait_until(|| writes(&place.path("runs/small/checkpoints")));
        running.kill();
        place.run(&["verify", "runs/small"]).done();
        let mark = place.text("runs/small/run.json");
        let mark: serde_json::Value = serde_json::from_str(&mark).unwrap();
        let last = mark["last"].as_str().expect("one was told as saved");
        assert!(place.path("runs/small").join(last).exists(), "{last}");
        let newest = place.checkpoints("runs/small").pop().unwrap();
        let newest: u64 = newest.strip_prefix("step-").unwrap().parse().unwrap();
        assert!(newest >= done, "{newest} after {done}");
        done = newest;
        running = place.start(&[&["--resume"], &often[..]].concat());
    }
    running.kill();
    let done = place.steps("runs/small").len() + 3;
    let last = ["--steps", &done.to_string(), "--weights-hash"];
    let resumed = place.run(&[&["train", "my.toml", "--resume"], &last[..]].concat()).done();
    let whole = place.run(&[&["train", "my.toml", "--run-dir", "whole"], &last[..]].concat());
    assert_eq!(whole.done().hash(), resumed.hash());
    place.run(&["verify", "runs/small"]).done();
}

#[test]
fn an_interruption_finishes_the_step_saves_and_exits_with_130() {
    let place = Place::new();
    let running = place.start(&["--set", "checkpoint.every=0"]);
    running.signal("-INT");
    let run = running.end();
    assert_eq!(run.0.status.code(), Some(130));
    has(&run.stderr(), &["interrupted: finishing this step, then saving"]);
    let steps = place.steps("runs/small");
    assert_eq!(place.checkpoints("runs/small"), [format!("step-{:08}", steps.len())]);
    let more = (steps.len() + 1).to_string();
    place.run(&["train", "my.toml", "--resume", "--steps", &more]).done();
    assert_eq!(place.steps("runs/small").len(), steps.len() + 1);
}

#[test]
fn a_loss_that_is_not_a_number_stops_the_run_and_keeps_the_last_good_checkpoint() {
    let place = Place::new();
    place.run(&["train", "my.toml", "--steps", "2"]).done();
    let sets = ["optimizer.learning_rate=1e30", "train.validate_every=0"];
    let run = place.run_with(&["train", "my.toml", "--resume"], &sets);
    assert_eq!(run.0.status.code(), Some(1), "{}", run.stderr());
    let stderr = run.stderr();
    has(&stderr, &["is not finite; first in", "error: step 3: "]);
    has(&stderr, &["the newest checkpoint is runs/small/checkpoints/step-00000002"]);
    place.run(&["train", "my.toml", "--resume"]).done();
    assert_eq!(place.steps("runs/small"), [0, 1, 2, 3, 4, 5]);
}

#[test]
fn the_environment_sets_keys() {
    let place = Place::new();
    let output = place.command(&["train", "my.toml"]).env("PIPEWRIGHT_TRAIN__STEPS", "1").output().unwrap();
    assert!(output.status.success());
    assert_eq!(place.steps("runs/small"), [0]);
}

#[test]
fn mnist_reaches_94_percent() {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let data = folder.join("../shared/data/mnist-t10k");
    if !data.exists() {
        println!("skipped: {} is absent", data.display());
        return;
    }
    let place = Place::new();
    let (config, data) = (folder.join("examples/mnist.toml"), format!("data.path={}", data.display()));
    place.run(&["train", config.to_str().unwrap(), "--run-dir", "mnist", "--set", &data]).done();
    let lines = place.lines("mnist");
    assert!(lines.last().unwrap()["validation_accuracy"].as_f64().unwrap() >= 0.94);
}
