//! Models that a config lists layer by layer write text, and are exported and trained further.

use super::evaluate::images;
use super::*;

const STACK: &str = "\
[model]
kind = 'stack'
stack = [
    { kind = 'embedding', vocab = 256, context = 16, dim = 12 },
    { kind = 'residual', layers = [
        { kind = 'layer_norm', width = 12 },
        { kind = 'linear', inputs = 12, outputs = 36 },
        { kind = 'attention', dim = 12, heads = 3 },
    ] },
    { kind = 'batch_norm', channels = 12 },
    { kind = 'linear', inputs = 12, outputs = 256 },
]
";

const REST: &str = "
[data]
path = 'text.txt'
seq = 16
[pipeline]
micro_batches = 2
micro_batch_size = 2
[train]
name = 'small'
steps = 4
";

fn place() -> Place {
    let place = Place::new();
    place.write("my.toml", format!("{STACK}{REST}"));
    place
}

fn sampled(place: &Place, from: &str) -> String {
    place.run(&["sample", from, "--prompt", "the quick", "--tokens", "30"]).done().stdout()
}

/// The loss of 20 micro-batches, without the time it took.
fn loss(place: &Place, from: &str) -> f64 {
    let data = ["data.validation_path=text.txt", "data.seq=16"];
    let sizes = ["train.validation_micro_batches=20", "pipeline.micro_batch_size=2"];
    let args = ["evaluate", from, "--format", "json"];
    let printed = place.run_with(&args, &[data, sizes].concat()).done().stdout();
    let printed: serde_json::Value = serde_json::from_str(&printed).unwrap();
    printed["loss"].as_f64().unwrap()
}

#[test]
fn a_stack_writes_text_and_is_exported_and_trained_further() {
    let place = place();
    let train = ["train", "my.toml", "--set", "train.sample_every=2", "--set", "train.sample_tokens=30"];
    let prompt = ["--set", "train.sample_prompt=the quick"];
    place.run(&[&train[..], &prompt].concat()).done();
    let text = sampled(&place, "runs/small");
    assert!(text.starts_with("the quick"), "{text}");
    let samples = place.text("runs/small/samples.jsonl");
    let last: serde_json::Value = serde_json::from_str(samples.lines().last().unwrap()).unwrap();
    assert_eq!(format!("the quick{}\n", last["text"].as_str().unwrap()), text);

    let said = place.run(&["export", "runs/small", "mine"]).done().stdout();
    assert_eq!(said, "mine: stack, after 4 steps\n");
    assert_eq!(sampled(&place, "mine"), text);
    assert_eq!(loss(&place, "mine"), loss(&place, "runs/small"));

    // A step that changes nothing but running means, from the weights of the folder.
    let config = format!("[model]\npath = 'mine'\n[optimizer]\nlearning_rate = 1e-12\n{REST}");
    place.write("on.toml", config);
    place.run(&["train", "on.toml", "--steps", "1", "--run-dir", "on"]).done();
    let [first, on] = ["runs/small", "on"].map(|run| place.lines(run)[0]["loss"].as_f64().unwrap());
    assert!(on < first, "it goes on where the other ended: {on}, {first}");
    let (changed, exported) = (loss(&place, "on"), loss(&place, "mine"));
    assert!((changed - exported).abs() < 0.1, "{changed}, {exported}");
    let said = place.run(&["train", "on.toml", "--set", "model.seed=3", "--set", "model.image=[1, 2, 3]"]);
    assert!(said.refused().contains("the folder"), "a folder decides the sizes");
}

#[test]
fn other_models_are_exported_with_our_names() {
    let place = Place::new();
    images(&place, 4);
    let config = "[model]\nkind = 'mlp'\nsizes = [16, 8, 3]\n\
                  [data]\nkind = 'idx'\npath = 'images.idx'\nlabels = 'labels.idx'\n[train]\nsteps = 1\n";
    place.write("mlp.toml", config);
    place.run(&["train", "mlp.toml"]).done();
    let said = place.run(&["export", "runs/run", "mine"]).done().stdout();
    assert_eq!(said, "mine: mlp, after 1 step\n");
    let file = fs::read(place.path("mine/model.safetensors")).unwrap();
    let tensors = safetensors::SafeTensors::deserialize(&file).unwrap();
    let mut names = tensors.names();
    names.sort();
    assert_eq!(names, ["fc0.bias", "fc0.weight", "fc1.bias", "fc1.weight"]);
    let said = place.run(&["sample", "mine"]).refused();
    assert_eq!(said, "error: mine: a model of the kind \"mlp\" writes no text: it reads images\n");
}

#[test]
fn stacks_that_cannot_write_say_why() {
    let place = place();
    let refused = |from: &str, to: &str| {
        let config = format!("{STACK}{REST}").replace(from, to);
        place.write("other.toml", config);
        place.run(&["train", "other.toml", "--set", "train.sample_every=2"]).refused()
    };
    let said = refused(
        "{ kind = 'batch_norm', channels = 12 }",
        "{ kind = 'residual', layers = [{ kind = 'flatten' }] }",
    );
    let why =
        "this stack writes no text: layer 2 has a `flatten`, which needs a whole text at a time; set it to 0";
    has(&said, &["train.sample_every: ", why]);
    let said = refused("outputs = 256 },\n", "outputs = 256 },\n    { kind = 'relu' },\n");
    has(&said, &["its last layer is not `linear`, with a score for each token"]);
}
