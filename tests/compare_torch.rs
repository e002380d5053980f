//! Our part of the comparison with PyTorch: what it counts, and what it gives the peer.

#[path = "common/has.rs"]
mod has;
#[path = "../benches/compare_torch/products.rs"]
mod products;
#[path = "../benches/compare_torch/rate.rs"]
mod rate;
#[path = "../benches/compare_torch/run.rs"]
mod run;
#[path = "../benches/compare_torch/sizes.rs"]
mod sizes;

use std::path::Path;

use has::has;
use pipewright::stages::{Place, Recompute, Stage};
use rate::Rates;
use run::Given;
use safetensors::SafeTensors;
use serde_json::Value;
use sizes::named;

const TEXT: &[u8] = b"A micro-batch goes from stage to stage, and its gradient comes back.";

/// Operations per token in the blocks of a GPT. A block has 12 dim^2 weights, and 2 products of causal
/// attention over (time + 1) / 2 positions on average. Each weight and each pair of positions is 2 operations
/// per pass, and there are three passes.
fn gpt(dim: u64, layers: u64, time: u64) -> u64 {
    let (weights, attention) = (2 * 12 * dim * dim, 2 * 2 * dim * (time + 1) / 2);
    3 * (layers * (weights + attention) + 2 * dim * 256)
}

#[test]
fn operations_are_those_counted_by_hand() {
    let flops = |size: &str| named(size).expect("a size").flops().expect("a model") as u64;
    assert_eq!(flops("A"), gpt(256, 8, 128));
    assert_eq!(flops("A"), 39_727_104);
    assert_eq!(flops("B"), gpt(512, 8, 256));
    assert_eq!(flops("C"), gpt(8, 0, 8));
    let [first, second, third] = [784 * 2048, 2048 * 2048, 2048 * 10];
    assert_eq!(flops("D"), 2 * (2 * first + 3 * second + 3 * third), "the images have no gradient");
}

#[test]
fn a_drawn_size_is_read_from_its_numbers() {
    let text =
        r#"{"layers": 3, "dim": 96, "heads": 2, "context": 48, "vocab": 256, "rows": 5, "micro_batches": 7}"#;
    let size = named(text).expect("all numbers are there");
    assert_eq!(size.targets(), 5 * 48 * 7);
    assert_eq!(size.flops().expect("a model") as u64, gpt(96, 3, 48));
    has(&named(&text.replace("rows", "row")).expect_err("there is no such number"), &["unknown field `row`"]);
}

#[test]
fn parameters_are_those_of_the_model() {
    for name in ["A", "D", "tiny"] {
        let size = named(name).expect("a size");
        let mut stage = size.model().and_then(|model| Ok(model.whole()?)).expect("a model");
        let parameters = stage.parameters().into_iter();
        let mut counts: Vec<_> = parameters.map(|one| (one.name().to_owned(), one.value.len())).collect();
        counts.sort();
        counts.dedup();
        assert_eq!(size.parameters(), counts.iter().map(|(_, count)| count).sum::<usize>(), "{name}");
    }
    let gpt2 = named("gpt2").expect("a size");
    assert_eq!(gpt2.parameters(), 124_475_904);
    let pairs = 12.0 * 768.0 * 1024.0;
    assert_eq!(gpt2.mfu_flops(), [12.0, 6.0].map(|each| 6.0 * 124_475_904.0 + each * pairs));
}

#[test]
fn a_bubble_holds_the_imbalance_of_the_cut() {
    let trained = train("C", "gpipe", 1);
    assert_eq!(trained["cut"], serde_json::json!([1, 1]));
    assert_eq!(trained["bubble"], 0.5, "of two stages only the second one multiplies");
}

#[test]
fn the_peer_gets_the_batches_and_weights_that_we_train_on() {
    let folder = tempfile::tempdir().expect("a folder");
    given("C", folder.path(), 3).prepare(folder.path()).expect("it is written");
    let read = |name: &str| std::fs::read(folder.path().join(name)).expect("it was written");
    let bytes = read("batches.safetensors");
    let batches = SafeTensors::deserialize(&bytes).expect("it is whole");
    let [x, y] = ["x", "y"].map(|name| batches.tensor(name).expect("it is there"));
    assert_eq!(x.shape(), [3, 64, 1, 8]);
    for (input, target) in x.data().chunks(8).zip(y.data().chunks(8)) {
        assert_eq!(input[1..], target[..7], "the target is the next byte");
        assert!(TEXT.windows(8).any(|window| window == input));
    }
    let bytes = read("weights.safetensors");
    let weights = SafeTensors::deserialize(&bytes).expect("it is whole");
    let mut names = weights.names();
    names.sort_unstable();
    let expected = ["lm_head.weight", "ln_f.bias", "ln_f.weight", "wpe.weight", "wte.weight"];
    assert_eq!(names, expected);
    let size: Value = serde_json::from_slice(&read("size.json")).expect("it is JSON");
    assert_eq!(size["cuts"], serde_json::json!({ "1F1B": [1, 1], "GPipe": [1, 1] }));
    assert_eq!(size["targets"], 512);
    let products = size["products"].as_array().expect("a list");
    let shapes: Vec<String> = products.iter().map(|one| one["shape"].to_string()).collect();
    let head = ["[8,8,256]", "[8,256,8]", "[256,8,8]"];
    assert_eq!(shapes, head, "forward, and both gradients");
    let flops: f64 = products.iter().filter_map(|one| one["flops"].as_f64()).sum();
    assert_eq!(flops / 8.0, size["flops"].as_f64().expect("a number"));
}

#[test]
fn every_schedule_trains_with_the_same_losses() {
    let one = train("C", "1f1b", 3);
    assert_eq!(one["seconds"].as_array().expect("a list").len(), 3);
    assert_eq!(one["losses"], train("C", "auto", 3)["losses"]);
}

#[test]
fn rates_are_of_each_pass_and_their_mean_is_below_the_best() {
    let rates = Rates::measure(&named("C").expect("a size"), 1).expect("a model");
    assert_eq!(rates.0.len(), 3, "the head: forward, both gradients");
    assert!(0.0 < rates.mean() && rates.mean() <= rates.best());
}

/// A run on the text, in this folder.
fn given(size: &str, folder: &Path, steps: u64) -> Given {
    let data = folder.join("text.txt");
    std::fs::write(&data, TEXT).expect("it can be written");
    Given {
        size: named(size).expect("a size"),
        data,
        steps,
        ranks: 2,
        replicas: 1,
        groups: 1,
        sharded: false,
        shards: 1,
        shard_groups: 1,
        places: vec![Place::default()],
        recompute: Recompute::default(),
    }
}

fn train(size: &str, schedule: &str, steps: u64) -> Value {
    let folder = tempfile::tempdir().expect("a folder");
    given(size, folder.path(), steps).train(schedule, 1, None).expect("it trains")
}
