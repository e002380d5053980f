//! The bench of GPUs, small and on the emulator: its first run on a GPU must not fail on a slip.

#![allow(unsafe_code, reason = "the emulator's loader")]

#[path = "../benches/gpu/attention.rs"]
mod attention;
#[path = "../benches/gpu/commands.rs"]
mod commands;
#[path = "../stages/tests/common/erfc.rs"]
mod erfc;
#[path = "../benches/gpu/functions.rs"]
mod functions;
#[path = "../benches/gpu/images.rs"]
mod images;
#[path = "../benches/gpu/kernels.rs"]
mod kernels;
#[path = "../benches/gpu/launches.rs"]
mod launches;
#[path = "../benches/gpu/layers.rs"]
mod layers;
#[path = "../benches/gpu/links.rs"]
mod links;
#[path = "../benches/gpu/member.rs"]
mod member;
#[path = "../benches/gpu/predicted.rs"]
mod predicted;
#[path = "../benches/compare_torch/products.rs"]
mod products;
#[path = "../benches/compare_torch/run.rs"]
mod run;
#[path = "../benches/compare_torch/sizes.rs"]
mod sizes;
#[path = "../benches/gpu/table.rs"]
mod table;
#[path = "../benches/gpu/timer.rs"]
mod timer;
#[path = "../benches/gpu/train.rs"]
mod train;

use pipewright::plan::Gpu;

/// What the bench prints for a tiny model.
fn printed(command: &str) -> String {
    let mut out = Vec::new();
    let arguments = format!("gpu --size tiny --steps 2 --rounds 1 {command}");
    let arguments = arguments.split_whitespace().map(str::to_owned);
    commands::run(arguments, &mut out).expect("it is measured");
    String::from_utf8(out).expect("text")
}

/// The row that begins so, as prediction, measurement and ratio.
fn row<'a>(text: &'a str, what: &str) -> Vec<&'a str> {
    let row = text.lines().find_map(|line| line.strip_prefix(what));
    let row = row.unwrap_or_else(|| panic!("{what} is not in\n{text}"));
    row.split("  ").map(str::trim).filter(|word| !word.is_empty()).collect()
}

/// Asserts that these rows have a prediction, a measurement and their ratio.
fn assert_rows(text: &str, rows: &[&str]) {
    for what in rows {
        let row = row(text, what);
        let ratio = row.get(2).and_then(|ratio| ratio.parse::<f64>().ok());
        assert!(ratio.is_some_and(f64::is_finite), "{what}: {row:?}\n{text}");
    }
}

fn is_emulated() -> bool {
    matches!(emulator::start(), emulator::Cuda::Emulated(_))
}

#[test]
fn training_is_predicted_and_measured_on_one_gpu_and_on_several() {
    if !is_emulated() {
        return;
    }
    let text = printed("train --stages 1 2");
    assert!(text.starts_with("predictions are those of `plan --device h100`"), "{text}");
    assert_rows(
        &text,
        &[
            "training: 1 stage, all on cuda:0",
            "training: 2 stages, all on cuda:0",
            "training: 2 stages, a GPU for each",
        ],
    );
    assert!(printed("train --stages 1 --json").starts_with('{'));
}

#[test]
fn kernels_of_a_gpt_are_predicted_and_measured() {
    if !is_emulated() {
        return;
    }
    let text = printed("kernels");
    let of_linear = |pass| format!("linear: 16 x 64 x 192, {pass}");
    let linear = ["forward", "I", "W"].map(of_linear);
    assert_rows(&text, &linear.each_ref().map(String::as_str));
    assert_rows(
        &text,
        &[
            "linear: 16 x 64 x 256 turned, W",
            "attention: 1 x 16, 1 heads of 64, I",
            "layer norm: 16 x 64, I",
            "gelu: 16 x 256, forward",
            "embedding: 16 x 64, W",
            "cross-entropy: 16 x 256, gradient",
            "adamw: 16384, update",
        ],
    );
    assert_eq!(row(&text, "convolution 3 x 3: 2 x 32 x 32 x 8, W")[0], "-");
}

/// Names what one way of attention has computed, in the process that computes it by the other way.
const SAMPLE: &str = "PIPEWRIGHT_TEST_SAMPLE";

#[test]
fn attention_by_wgmma_is_measured_and_compared_with_the_usual_one() {
    if !is_emulated() {
        return;
    }
    if let Ok(file) = std::env::var(SAMPLE) {
        return println!("{}", printed(&format!("attention --beside {file}")));
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("sample");
    let text = printed(&format!("attention --keep {}", file.display()));
    assert_eq!(row(&text, "1 x 200, 2/1 heads of 64, forward").len(), 4, "{text}");
    let output = std::process::Command::new(std::env::current_exe().expect("this program"))
        .args(["attention_by_wgmma", "--nocapture"])
        .env(SAMPLE, &file)
        .env("PIPEWRIGHT_ATTENTION", "wgmma")
        .output()
        .expect("a process");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("shape 2: input gradient is "), "{text}");
    assert!(!text.contains("is 0.0e0 away"), "it was the same way: {text}");
}

#[test]
fn training_with_weight_gradients_beside_is_measured() {
    if !is_emulated() {
        return;
    }
    const BACKWARD_WEIGHT: &str = "PIPEWRIGHT_BACKWARD_WEIGHT";
    if std::env::var_os(BACKWARD_WEIGHT).is_some() {
        return println!("{}", printed("train --stages 1"));
    }
    let output = std::process::Command::new(std::env::current_exe().expect("this program"))
        .args(["training_with_weight_gradients_beside", "--nocapture"])
        .env(BACKWARD_WEIGHT, "beside")
        .output()
        .expect("a process");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    assert_rows(&text, &["training: 1 stage, all on cuda:0, backward-weight beside"]);
}

#[test]
fn launches_functions_and_links_are_measured() {
    if !is_emulated() {
        return;
    }
    assert_rows(&printed("launches"), &["a launch, on the GPU"]);
    let text = printed("functions");
    assert_rows(&text, &["erfcf, in GELU", "expf, in a sigmoid"]);
    assert_rows(
        &printed("links"),
        &[
            "a copy from cuda:0 to cuda:1",
            "a small send",
            "a send of an activation",
            "products whose results are sent, to products",
            "products beside a receive that waits, to products",
            "sends beside products, to sends",
        ],
    );
}

#[test]
fn rows_are_also_added_to_a_file() {
    if !is_emulated() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("rows");
    for rate in ["441000", "490000"] {
        printed(&format!("--rows {} peer {rate}", file.display()));
    }
    let rows = std::fs::read_to_string(&file).expect("written");
    assert_eq!(rows.lines().count(), 2, "{rows}");
    assert_eq!(row(&rows, "PyTorch, compiled")[..3], ["490000 tok/s", "441000 tok/s", "0.900"]);
}

#[test]
fn columns_are_told_apart_however_slow_the_machine_is() {
    let mut out = Vec::new();
    let mut table = table::Table::new(&mut out, None).expect("no file is opened");
    let guess = table::Guess { what: "a launch", unit: table::Unit::Time, predicted: Some(4e-6) };
    table.row(&guess, 4e5, "one note").expect("it is printed");
    drop(table);
    let text = String::from_utf8(out).expect("text");
    assert_eq!(row(&text, "a launch"), ["4.0 us", "400000000000.0 us", "100000000000.000", "one note"]);
}

#[test]
fn a_gpu_is_known_by_its_name_or_its_compute_capability() {
    let kind = |name, capability| predicted::kind(name, capability).map(|kind: &Gpu| &*kind.name);
    assert_eq!(kind("NVIDIA H100 80GB HBM3", (9, 0)), Some("h100"));
    assert_eq!(kind("NVIDIA H200", (9, 0)), Some("h200"));
    assert_eq!(kind("NVIDIA A100-SXM4-80GB", (8, 0)), Some("a100"));
    assert_eq!(kind("NVIDIA B200", (10, 0)), Some("b200"));
    assert_eq!(kind("some engineering sample", (9, 0)), Some("h100"));
    assert_eq!(kind("NVIDIA GeForce RTX 4090", (8, 9)), None);
}
