//! Private training, through the commands.

use super::*;

const CONFIG: &str = "\
[model]
vocab = 512
dim = 16
layers = 2
heads = 2
dropout = 0.1

[data]
kind = 'jsonl'
path = 'texts.jsonl'
tokenizer = 'TOKENIZER'
cache = 'cache'
packing = 'single'
seq = 16
validation = 4

[pipeline]
micro_batches = 4
micro_batch_size = 1
gradient_groups = 4

[privacy]
clip = 0.5
noise = 0.8
secret_file = 'noise.secret'

[train]
name = 'small'
steps = 6
validate_every = 3
print_every = 1

[checkpoint]
every = 2
";

/// A folder with that config, 44 texts and a secret.
fn place() -> Place {
    let place = Place::empty();
    place.write("my.toml", CONFIG.replace("TOKENIZER", TOKENIZER));
    let text = |number: u32| {
        format!("{{\"text\": \"{}\"}}\n", "a word and another. ".repeat(1 + number as usize % 5))
    };
    place.write("texts.jsonl", (0..44).map(text).collect::<String>());
    secret(&place, "the noise follows from these words");
    place
}

fn secret(place: &Place, text: &str) {
    place.write("noise.secret", text);
    own(place, 0o600);
}

/// Sets who may read the secret.
fn own(place: &Place, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(place.path("noise.secret"), fs::Permissions::from_mode(mode)).unwrap();
}

fn train(place: &Place, name: &str, args: &[&str], sets: &[&str]) -> Run {
    let name = format!("runs/{name}");
    let args = [&["train", "my.toml", "--weights-hash", "--run-dir", &name], args, &set(sets)].concat();
    place.run(&args).done()
}

#[test]
fn a_private_run_says_what_it_spends_and_has_the_same_bits_on_any_layout() {
    let place = place();
    let one = train(&place, "one", &[], &["pipeline.stages=1"]);
    // A step takes 4 of 40 texts.
    let said = "privacy   gradients of samples clipped to 0.5, noise 0.8, epsilon ";
    has(&one.stdout(), &[said, " at delta 1e-5 after 6 steps", ", privacy spent: epsilon "]);
    let spent: Vec<f64> =
        place.lines("runs/one").iter().map(|line| line["epsilon"].as_f64().unwrap()).collect();
    let accountant = pipewright::privacy::Accountant::new(0.8, 0.1, 1e-5);
    let expected: Vec<f64> = (1..=6).map(|steps| accountant.epsilon(steps)).collect();
    assert_eq!(spent, expected);
    for sets in [
        &["pipeline.stages=3", "pipeline.schedule=zb-h1"][..],
        &["pipeline.replicas=2", "optimizer.sharded=true"],
        &["pipeline.replicas=4", "pipeline.stages=1"],
    ] {
        let name = sets.join("_").replace(['.', '='], "_");
        assert_eq!(train(&place, &name, &[], sets).hash(), one.hash(), "{sets:?}");
    }
    secret(&place, "the noise follows from other words");
    assert_ne!(train(&place, "other", &[], &["pipeline.stages=1"]).hash(), one.hash());
}

#[test]
fn epsilon_goes_on_after_the_run_was_stopped() {
    let place = place();
    let whole = train(&place, "whole", &[], &[]);
    train(&place, "parts", &["--steps", "4"], &[]);
    let resumed = train(&place, "parts", &["--resume"], &["pipeline.stages=1"]);
    assert_eq!(resumed.hash(), whole.hash());
    let spent = |run: &str| place.lines(run).last().unwrap()["epsilon"].as_f64().unwrap();
    assert_eq!(spent("runs/parts"), spent("runs/whole"));
    let resume = |set: &str| {
        let args = ["train", "my.toml", "--resume", "--run-dir", "runs/parts", "--set", "train.steps=8"];
        place.run(&[&args[..], &["--set", set]].concat())
    };
    let told =
        ["privacy.clip: the steps before had another setting (privacy.noise: 0.8 -> 0.9)", "all steps alike"];
    has(&resume("privacy.noise=0.9").refused(), &told);
    has(&resume("pipeline.micro_batches=8").refused(), &["another setting (pipeline.micro_batches: 4 -> 8)"]);
}

#[test]
fn a_run_that_was_not_private_does_not_become_private() {
    let place = place();
    let text = CONFIG.replace("TOKENIZER", TOKENIZER);
    let (before, after) = text.split_once("[privacy]").unwrap();
    let (_, after) = after.split_once("[train]").unwrap();
    place.write("public.toml", format!("{before}[train]{after}"));
    place.run(&["train", "public.toml", "--steps", "2"]).done();
    let said = place.run(&["train", "my.toml", "--resume"]).refused();
    has(&said, &["privacy.clip: the steps before had no privacy, and epsilon counts all steps alike"]);
}

#[test]
fn a_plan_says_what_a_run_will_spend() {
    let place = place();
    let said = place.run(&["plan", "my.toml", "--format", "csv"]).done().stderr();
    has(&said, &["privacy: epsilon ", " at delta 1e-5 after 6 steps"]);
    fs::remove_file(place.path("texts.jsonl")).unwrap();
    let said = place.run(&["plan", "my.toml", "--format", "csv"]).done().stderr();
    has(&said, &["warning: epsilon is not known, since the data cannot be read: ", "texts.jsonl"]);
}

#[test]
fn a_secret_that_is_none_is_refused() {
    let place = place();
    let refused = || place.run(&["train", "my.toml"]).refused();
    own(&place, 0o644);
    has(&refused(), &["privacy.secret_file: others can read `noise.secret` (its mode is 0644)"]);
    secret(&place, "short");
    has(&refused(), &["privacy.secret_file: `noise.secret` has 5 bytes, and a secret has 16 to 4096"]);
    fs::remove_file(place.path("noise.secret")).unwrap();
    has(&refused(), &["privacy.secret_file: cannot read `noise.secret`: No such file"]);
}
