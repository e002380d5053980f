//! Attention's forward by `wgmma`, for Hopper: the tests of attention again, those at the edges of its own
//! tiles, and the values that switch it on.

use std::env;

use pipewright_stages::devices::probe;
use pipewright_stages::layers::{Attention, Heads};

use super::attention::{Sizes, check, draw, on_gpu};
use super::*;

/// The variable that switches it on.
const ATTENTION: &str = "PIPEWRIGHT_ATTENTION";

/// The head widths for which there is such a kernel.
const WIDTHS: [usize; 2] = [64, 128];

/// How the tests are run with it: in the opposite order of threads and blocks; and where kernels tell the
/// addresses that they use, which takes longer, those of its own.
const RUNS: [(&str, &[&str]); 2] = [
    (
        "PIPEWRIGHT_EMULATOR_BACKWARDS",
        &[
            "attention::fused",
            "attention::attention_gives_the_same_bits",
            "apart::attention",
            "hopper::a_head_",
        ],
    ),
    ("PIPEWRIGHT_EMULATOR_ADDRESSES", &["hopper::edges", "hopper::a_document_"]),
];

/// Whether the first GPU has `wgmma`.
fn is_hopper() -> bool {
    !emulator::start().is_none() && probe().gpus.is_ok_and(|gpus| gpus[0].capability == (9, 0))
}

/// What these tests say in a process of their own, and whether they succeed.
fn told(tests: &[&str], variables: [(&str, &str); 2]) -> (bool, String) {
    let output = Command::new(env::current_exe().expect("this program"))
        .args(tests)
        .envs(variables)
        .output()
        .expect("a process");
    let [told, errors] =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    (output.status.success(), told + &errors)
}

#[test]
fn attention_by_wgmma_passes_the_tests_of_attention() {
    if env::var_os(ATTENTION).is_some() || !is_hopper() {
        return;
    }
    for (setting, tests) in RUNS {
        let (succeeds, told) = told(tests, [(ATTENTION, "wgmma"), (setting, "1")]);
        assert!(succeeds, "{setting}: {told}");
    }
}

#[test]
fn edges_of_tiles_of_128_keys_and_of_blocks_of_192_queries() {
    if emulator::start().is_none() {
        return;
    }
    for width in WIDTHS {
        for time in [127, 128, 129, 191, 193, 257] {
            check(DType::Bf16, Sizes::grouped([2, time], [2, 1, width], None));
        }
        // Six tiles, for which there are two places.
        check(DType::Bf16, Sizes::alone([1, 650, 1, width]));
        for window in [1, 64, 128, 129, 200] {
            check(DType::Bf16, Sizes::grouped([1, 330], [1, 1, width], Some(window)));
        }
    }
}

/// The numbers of some sequences and one group of query heads.
fn part(sizes: Sizes, [qkv, grad]: &[Vec<f32>; 2], sequence: usize, group: usize) -> [Vec<f32>; 2] {
    let Heads { query, key_value, width } = sizes.heads;
    let shared = query / key_value;
    let (mut own_qkv, mut own_grad) = (Vec::new(), Vec::new());
    for row in sequence * sizes.time..(sequence + 1) * sizes.time {
        let vectors = |first: usize, count: usize| {
            let start = row * sizes.heads.row() + first * width;
            &qkv[start..start + count * width]
        };
        own_qkv.extend_from_slice(vectors(group * shared, shared));
        own_qkv.extend_from_slice(vectors(query + group, 1));
        own_qkv.extend_from_slice(vectors(query + key_value + group, 1));
        let start = (row * query + group * shared) * width;
        own_grad.extend_from_slice(&grad[start..start + shared * width]);
    }
    [own_qkv, own_grad]
}

#[test]
fn a_head_has_the_same_bits_among_any_number_of_sequences_and_heads() {
    if emulator::start().is_none() {
        return;
    }
    for (width, window) in [(64, None), (64, Some(150)), (128, Some(70)), (128, None)] {
        let sizes = Sizes::grouped([3, 210], [4, 2, width], window);
        let alone = Sizes::grouped([1, 210], [2, 1, width], window);
        let inputs = draw(sizes);
        let all = on_gpu(sizes, DType::Bf16, &inputs);
        // The input gradient has the shape of the input, and the output that of the output's gradient.
        let all = [all[1].clone(), all[0].clone()];
        for (sequence, group) in [(0, 0), (1, 1), (2, 0), (2, 1)] {
            let [output, input_grad] = on_gpu(alone, DType::Bf16, &part(sizes, &inputs, sequence, group));
            let [expected_grad, expected] = part(sizes, &all, sequence, group);
            let what = format!("heads of {width}, window {window:?}, sequence {sequence}, group {group}");
            assert_eq!(bits(&output), bits(&expected), "output, {what}");
            assert_eq!(bits(&input_grad), bits(&expected_grad), "input gradient, {what}");
        }
    }
}

/// Times a power of 0, NaN would be NaN.
#[test]
fn a_document_does_not_read_the_next_one() {
    if emulator::start().is_none() {
        return;
    }
    for width in WIDTHS {
        let heads = Heads { query: 1, key_value: 1, width };
        let (first, time) = (70, 100);
        let mut qkv = numbers("qkv", time * heads.row());
        qkv[first * heads.row()..].fill(f32::NAN);
        let qkv = Tensor::from_vec(&[1, time, heads.row()], qkv).unwrap().to(gpu(DType::Bf16)).unwrap();
        let starts = (0..time).map(|token| if token < first { 0 } else { first as u32 });
        let borders = pipewright_stages::Borders::default();
        let mut layer = Attention::grouped("attention", heads, None).unwrap();
        layer.keep_apart(&borders).unwrap();
        borders.set(train(0), Tensor::from_ids(&[1, time], starts.collect()).unwrap()).unwrap();
        let output = here(layer.forward(train(0), qkv).unwrap().0);
        assert!(output[..first * width].iter().all(|number| number.is_finite()), "heads of {width}");
    }
}

#[test]
fn other_values_and_other_gpus_are_refused() {
    if env::var_os(ATTENTION).is_some() || !matches!(emulator::start(), emulator::Cuda::Emulated(_)) {
        return;
    }
    const CAPABILITY: &str = "PIPEWRIGHT_EMULATOR_CAPABILITY";
    for (way, capability, expected) in [
        (
            "hopper",
            "9.0",
            "PIPEWRIGHT_ATTENTION is `hopper`: write `wgmma`, or unset it for the usual kernels",
        ),
        (
            "wgmma",
            "10.0",
            "PIPEWRIGHT_ATTENTION=wgmma needs compute capability 9.0 (Hopper), and cuda:0 has 10.0: unset it",
        ),
    ] {
        let (succeeds, told) = told(&["hopper::edges"], [(ATTENTION, way), (CAPABILITY, capability)]);
        assert!(!succeeds && told.contains(expected), "{told}");
    }
}
