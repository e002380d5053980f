//! The texts that a model writes while it is trained.

use super::*;

const EVERY_TWO: [&str; 3] =
    ["train.sample_every=2", "train.sample_tokens=20", "train.sample_prompt=the quick"];

fn samples(place: &Place, run: &str) -> String {
    place.text(&format!("{run}/samples.jsonl"))
}

#[test]
fn a_run_writes_what_its_checkpoints_would_write_and_no_weight_changes() {
    let place = Place::new();
    let silent = place.run(&["train", "my.toml", "--run-dir", "silent", "--weights-hash"]).done();
    let args = ["train", "my.toml", "--run-dir", "writes", "--weights-hash", "--set", "checkpoint.keep=9"];
    let run = place.run_with(&args, &EVERY_TWO).done();
    assert_eq!(run.hash(), silent.hash());
    assert!(!place.path("silent/samples.jsonl").exists());
    let written = samples(&place, "writes");
    let lines: Vec<serde_json::Value> =
        written.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let steps: Vec<_> = lines.iter().map(|line| line["step"].as_u64().unwrap()).collect();
    assert_eq!(steps, [2, 4, 6]);
    for line in &lines {
        let checkpoint = format!("writes/checkpoints/step-{:08}", line["step"].as_u64().unwrap());
        let args = ["sample", &checkpoint, "--prompt", "the quick", "--tokens", "20"];
        let text = format!("the quick{}\n", line["text"].as_str().unwrap());
        assert_eq!(line["prompt"], "the quick");
        assert_eq!(place.run(&args).done().stdout(), text);
    }
    has(&run.stdout(), &["sample after 4 steps: \"the quick\""]);
}

#[test]
fn any_cut_and_replicas_write_the_same() {
    let place = Place::new();
    let write = |run, sets: &[&str]| {
        let sizes = ["pipeline.micro_batches=4", "pipeline.gradient_groups=2"];
        place
            .run_with(&["train", "my.toml", "--run-dir", run], &[&sizes, &EVERY_TWO[..], sets].concat())
            .done();
        samples(&place, run)
    };
    let expected = write("one", &["pipeline.stages=1"]);
    assert_eq!(write("cut", &["pipeline.stages=4", "pipeline.schedule=zb-v"]), expected);
    assert_eq!(write("twice", &["pipeline.replicas=2"]), expected);
    let server = ["pipeline.replicas=2", "pipeline.sync=server", "pipeline.recompute=full"];
    assert_eq!(write("served", &server), expected);
}

#[test]
fn a_resumed_run_has_each_text_once() {
    let place = Place::new();
    let run = |args: &[&str]| place.run_with(&[&["train", "my.toml"], args].concat(), &EVERY_TWO).done();
    run(&["--run-dir", "whole"]);
    run(&["--run-dir", "again", "--steps", "4"]);
    // As if it was killed before the last checkpoint was complete.
    fs::remove_dir_all(place.path("again/checkpoints/step-00000004")).unwrap();
    let mut file = fs::OpenOptions::new().append(true).open(place.path("again/samples.jsonl")).unwrap();
    file.write_all(b"{\"step\":5,\"prom").unwrap();
    run(&["--run-dir", "again", "--resume"]);
    assert_eq!(samples(&place, "again"), samples(&place, "whole"));
}

#[test]
fn texts_beyond_the_context_are_told_before_they_are_written() {
    let place = Place::new();
    let told = |tokens: &str| {
        let tokens = format!("train.sample_tokens={tokens}");
        let train = ["train", "my.toml", "--steps", "1", "--run-dir", &tokens, "--set"];
        place.run(&[&train[..], &[&tokens, "--set", "train.sample_every=2"]].concat()).done().stderr()
    };
    let warning =
        "warning: train.sample_tokens: 17 tokens after a prompt of 1 are more than the model's context of";
    has(&told("17"), &[warning]);
    assert!(!told("16").contains("warning: train.sample_tokens"));
}

#[test]
fn what_cannot_be_written_is_refused() {
    let place = Place::new();
    let refused = |sets: &[&str]| {
        place.run_with(&["train", "my.toml", "--set", "train.sample_every=2"], sets).refused()
    };
    has(&refused(&["train.sample_prompt="]), &["train.sample_prompt: it is empty"]);
    has(&refused(&["train.sample_temperature=-1"]), &["train.sample_temperature: -1 is not allowed"]);
    has(&refused(&["train.sample_tokens=0"]), &["train.sample_tokens: is 0"]);
    assert!(!place.path("runs/small").exists());
}
