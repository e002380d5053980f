//! Gradients of weights on a stream of their own: the same bits, no race, and little memory. Each test here
//! runs in a process of its own, where the variable switches the stream on. A race ends that process.

use std::env;

use emulator::{Cuda, answer, tell};
use pipewright_stages::layers::{Block, Linear, Relu};
use pipewright_stages::optimizer::{AdamW, Update, update};
use pipewright_stages::{Gradient, Packed, Parameter};

use super::*;

const BACKWARD_WEIGHT: &str = "PIPEWRIGHT_BACKWARD_WEIGHT";
const MEMORY: &str = "PIPEWRIGHT_EMULATOR_MEMORY";

/// How many products wait at most, and how many tensors each reads.
const WAITING: usize = 4;
const READ: usize = 2;

const ROWS: usize = 6;
const WIDTH: usize = 24;
const PLACE: Place = Place { device: pipewright_stages::Device::Cuda(0), dtype: DType::F32 };

fn linear(name: &str, inputs: usize, outputs: usize) -> Linear {
    Linear::new(name, [inputs, outputs], Init::Normal(0.3), 1).with_bias(Init::Uniform(0.3))
}

/// Layers with more products than may wait. ReLU changes gradients in place.
fn stage(dtype: DType) -> Sequential {
    let inner = chain![linear("up", WIDTH, 40), Relu::new("relu"), linear("down", 40, WIDTH)];
    let mut stage = Sequential::new(chain![
        linear("first", WIDTH, WIDTH),
        Relu::new("after"),
        Block::residual("residual", inner).repeated(3),
        linear("last", WIDTH, WIDTH),
    ]);
    stage.move_to(gpu(dtype)).expect("it runs there");
    stage
}

/// Forward and backward of a micro-batch: the input gradient.
fn pass(stage: &mut Sequential, micro_batch: u32) -> Tensor {
    let name = |what: &str| format!("{what} {micro_batch}");
    let input = stage.load(tensor(&name("x"), &[ROWS, WIDTH])).expect("there is room");
    let (output, kept) = stage.forward(train(micro_batch), input).expect("forward");
    let grad = tensor(&name("dy"), &[ROWS, WIDTH]).to(output.place()).expect("there is room");
    if micro_batch.is_multiple_of(2) {
        return stage.backward(kept, grad).expect("backward").expect("it has one");
    }
    let (input_grad, pending) = stage.backward_input(kept, grad).expect("backward-input");
    stage.backward_weight(pending).expect("backward-weight");
    input_grad.expect("it has one")
}

fn each(stage: &mut Sequential, mut act: impl FnMut(&mut Parameter)) {
    stage.visit_parameters(&mut |parameter| act(parameter));
}

/// Gradients and weights of a few steps, with sums that are put aside.
fn trained(dtype: DType) -> Vec<u32> {
    let mut stage = stage(dtype);
    let mut all = Vec::new();
    let mut together = Together::default();
    for step in 1..4 {
        each(&mut stage, |parameter| parameter.start_sum(&mut together).expect("a sum"));
        together.launch().expect("launches");
        for micro_batch in 0..5 {
            all.extend(bits(&here(pass(&mut stage, micro_batch))));
            let is_last = micro_batch == 4;
            each(&mut stage, |parameter| {
                parameter.expect_end(if is_last { micro_batch as usize } else { 0 });
                parameter.end_group().expect("a sum");
                if !is_last {
                    parameter.put_aside(&mut together).expect("a sum");
                }
            });
            together.launch().expect("launches");
        }
        each(&mut stage, |parameter| {
            parameter.fetch(Part::Gradient).expect("there");
            all.extend(bits(&parameter.grad));
            let of = Update { step, learning_rate: 0.1, scale: 0.5, micro_batches: 5 };
            update(&AdamW::default(), parameter, of, &mut together).expect("an update");
        });
        together.launch().expect("launches");
    }
    each(&mut stage, |parameter| {
        parameter.fetch(Part::Value).expect("there");
        all.extend(bits(&parameter.value));
    });
    all
}

/// A short text that is another one for other bits.
fn hash(bits: &[u32]) -> String {
    let sum = bits.iter().fold(0_u64, |sum, bits| sum.wrapping_mul(0x100_0000_01b3) ^ u64::from(*bits));
    format!("{} numbers, {sum:x}", bits.len())
}

/// Whether this process has such a stream.
fn is_on() -> bool {
    env::var_os(BACKWARD_WEIGHT).is_some()
}

fn is_emulated() -> bool {
    matches!(emulator::start(), Cuda::Emulated(_))
}

/// What tests of this program say in a process of their own, and whether they succeed.
fn told(tests: &[&str], variables: &[(&str, &str)]) -> (bool, String) {
    let output = Command::new(env::current_exe().expect("this program"))
        .args(tests)
        .args(["--nocapture", "--test-threads=1"])
        .envs(variables.iter().copied())
        .output()
        .expect("a process");
    let [told, errors] =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    (output.status.success(), told + &errors)
}

/// Runs a test again with the stream. Returns what it said, or `None` if this is that process, or there is no
/// emulator.
fn again(test: &str, variables: &[(&str, &str)]) -> Option<String> {
    if !is_emulated() || is_on() {
        return None;
    }
    let name = format!("beside::{test}");
    let (succeeds, told) = told(&["--exact", &name], &[variables, &[(BACKWARD_WEIGHT, "beside")]].concat());
    assert!(succeeds, "{test}: {told}");
    Some(told)
}

#[test]
fn layers_pass_their_tests() {
    if is_on() || !is_emulated() {
        return;
    }
    let tests = ["apart::", "blocks::", "choice::", "convolution::", "experts::", "frozen::", "onto::"];
    let (succeeds, told) = told(&tests, &[(BACKWARD_WEIGHT, "beside")]);
    assert!(succeeds, "{told}");
}

#[test]
fn training_has_the_bits_of_one_stream() {
    if emulator::start().is_none() {
        return;
    }
    let hashes = || [DType::F32, DType::Bf16].map(|dtype| hash(&trained(dtype))).join("; ");
    match again("training_has_the_bits_of_one_stream", &[]) {
        Some(told) => assert!(told.contains(&hashes()), "{told}"),
        None => println!("{}", hashes()),
    }
}

#[test]
fn each_use_of_a_gradient_waits_for_it() {
    if again("each_use_of_a_gradient_waits_for_it", &[]).is_some() || !is_on() {
        return;
    }
    let mut stage = stage(DType::F32);
    let uses: [fn(&mut Parameter); 12] = [
        |parameter| parameter.fetch(Part::Gradient).expect("there"),
        |parameter| parameter.store(Part::Gradient).expect("there"),
        |parameter| parameter.zero_grad().expect("there"),
        |parameter| Together::now(|all| parameter.start_grad_squares(all)).expect("there"),
        |parameter| {
            let of = Update { step: 1, learning_rate: 0.1, scale: 0.5, micro_batches: 3 };
            Together::now(|all| update(&AdamW::default(), parameter, of, all)).expect("there");
        },
        |parameter| {
            Together::now(|all| parameter.put_aside(all)).expect("there");
            parameter.append_sum(0, 0..1, &mut Vec::new()).expect("there");
        },
        |parameter| parameter.append_grad(0..1, &mut Vec::new()).expect("there"),
        |parameter| parameter.set_grad(0, &[0; 4]).expect("there"),
        |parameter| parameter.add_grad(0, &mut [0; 4]).expect("there"),
        |parameter| {
            let taken = Gradient::take(parameter).expect("there");
            taken.packed().expect("there");
            taken.put_back(parameter);
        },
        |parameter| {
            let mut packed = Packed::new(PLACE.device, 1).expect("there is room");
            parameter.pack_sum(usize::MAX, 0, &mut packed).expect("there");
        },
        |parameter| {
            let packed = Packed::new(PLACE.device, 1).expect("there is room");
            parameter.unpack_grad(0, &packed).expect("there");
        },
    ];
    for act in uses {
        pass(&mut stage, 0);
        each(&mut stage, act);
    }
}

/// All memory of the stage is used again, also that of its gradients.
#[test]
fn a_stage_may_end_before_its_products() {
    if again("a_stage_may_end_before_its_products", &[]).is_some() || !is_on() {
        return;
    }
    for _ in 0..3 {
        let mut stage = stage(DType::F32);
        (0..2).for_each(|micro_batch| drop(pass(&mut stage, micro_batch)));
    }
}

/// How much device memory there is, in blocks.
fn blocks() -> usize {
    let left = answer("pw_left");
    let count = left.split(' ').next().and_then(|count| count.parse().ok());
    count.unwrap_or_else(|| panic!("{left}"))
}

#[test]
fn few_tensors_wait_for_their_products() {
    if !is_emulated() {
        return;
    }
    let test = "few_tensors_wait_for_their_products";
    if env::var_os(MEMORY).is_some() {
        let mut stage = stage(DType::F32);
        let mut after = |count| {
            (0..count).for_each(|micro_batch| drop(pass(&mut stage, micro_batch)));
            blocks()
        };
        let few = after(2);
        assert_eq!(after(20), few, "more micro-batches need no more");
        return println!("so many blocks: {few}.");
    }
    let memory = (MEMORY, "1073741824");
    let count = |told: &str| {
        let rest = told.split("so many blocks: ").nth(1).expect("it says so");
        rest.split('.').next().and_then(|count| count.parse::<usize>().ok()).expect("a number")
    };
    let with = count(&again(test, &[memory]).expect("this process is another one"));
    let (succeeds, told) = told(&["--exact", &format!("beside::{test}")], &[memory]);
    assert!(succeeds, "{told}");
    let without = count(&told);
    // The workspace of the products is one more.
    assert!(with <= without + 1 + WAITING * READ, "{with} blocks, and {without} without the stream");
}

/// There is room for three tensors besides the workspaces. After the product, two of them wait for it.
#[test]
fn what_waits_for_a_product_is_freed_when_there_is_no_other_memory() {
    let test = "what_waits_for_a_product_is_freed_when_there_is_no_other_memory";
    const MIB: usize = 1 << 20;
    let all = (160 * MIB).to_string();
    if again(test, &[(MEMORY, &all)]).is_some() || !is_on() {
        return;
    }
    let mut layer = Linear::new("wide", [1 << 10; 2], Init::Normal(0.1), 1);
    layer.parameters().into_iter().for_each(|parameter| parameter.move_to(PLACE).expect("there is room"));
    let large = |name| tensor(name, &[5 << 10, 1 << 10]).to(PLACE).expect("there is room");
    layer.drop_input_gradient();
    let (output, kept) = layer.forward(train(0), large("x")).expect("there is room");
    let (_, pending) = layer.backward_input(kept, output).expect("there is room");
    layer.backward_weight(pending).expect("there is room");
    let larger = tensor("larger", &[12 << 10, 1 << 10]).to(PLACE);
    larger.expect("there is room when the product is done");
}

/// The event after a product cannot be recorded. Then the host waits for the product.
#[test]
fn memory_stays_until_a_product_that_nobody_can_wait_for() {
    if again("memory_stays_until_a_product_that_nobody_can_wait_for", &[]).is_some() || !is_on() {
        return;
    }
    let mut stage = stage(DType::F32);
    pass(&mut stage, 0);
    each(&mut stage, |parameter| parameter.fetch(Part::Gradient).expect("there"));
    let grad = tensor("dy", &[ROWS, WIDTH]).to(PLACE).expect("there is room");
    let input = stage.load(tensor("x", &[ROWS, WIDTH])).expect("there is room");
    let (_, kept) = stage.forward(train(0), input).expect("forward");
    let (_, pending) = stage.backward_input(kept, grad).expect("backward-input");
    tell("pw_fail", "cuEventRecord:2");
    let failed = stage.backward_weight(pending).expect_err("the second record fails").to_string();
    assert!(failed.contains("let cuEventRecord fail"), "{failed}");
    tell("pw_fail", "");
    (0..2).for_each(|micro_batch| drop(pass(&mut stage, micro_batch)));
}

/// The trial of its algorithms fails when the product is queued already.
#[test]
fn a_gradient_waits_for_a_product_that_has_failed() {
    let test = "a_gradient_waits_for_a_product_that_has_failed";
    // Nothing is known of the product from earlier runs.
    let cache = tempfile::tempdir().expect("a folder");
    let cache = cache.path().to_string_lossy();
    let variables = [("XDG_CACHE_HOME", &*cache), ("PIPEWRIGHT_EMULATOR_OPTIMIZE", "-O0")];
    if again(test, &variables).is_some() || !is_on() {
        return;
    }
    let size = 1 << 10;
    let mut layer = Linear::new("large", [size; 2], Init::Normal(0.02), 1).without_bias();
    layer.parameters().into_iter().for_each(|parameter| parameter.move_to(PLACE).expect("there is room"));
    layer.drop_input_gradient();
    let [input, grad] = ["x", "dy"].map(|name| tensor(name, &[size; 2]).to(PLACE).expect("there is room"));
    for pass in 1..=3 {
        let (_, kept) = layer.forward(train(0), input.clone()).expect("forward");
        let (_, pending) = layer.backward_input(kept, grad.clone()).expect("backward-input");
        if pass < 3 {
            layer.backward_weight(pending).expect("backward-weight");
            layer.parameters()[0].fetch(Part::Gradient).expect("there");
            continue;
        }
        tell("pw_fail", "cuMemAllocAsync:1");
        let failed = layer.backward_weight(pending).expect_err("the trial has no memory").to_string();
        assert!(failed.contains("let cuMemAllocAsync fail"), "{failed}");
        tell("pw_fail", "");
    }
    layer.parameters()[0].fetch(Part::Gradient).expect("there");
}

#[test]
fn its_priority_is_below_that_of_the_compute_stream() {
    let test = "its_priority_is_below_that_of_the_compute_stream";
    if let Some(told) = again(test, &[]) {
        // Computing, gradients, and three for transfers and copies.
        return assert!(told.contains("priorities: -1 0 -5 -5 -5."), "{told}");
    }
    if is_on() {
        drop(stage(DType::F32));
        println!("priorities: {}.", answer("pw_priorities"));
    }
}

#[test]
fn other_values_are_refused() {
    if is_on() || !is_emulated() {
        return;
    }
    let (succeeds, told) =
        told(&["--exact", "beside::a_stage_may_end_before_its_products"], &[(BACKWARD_WEIGHT, "1")]);
    let expected = "PIPEWRIGHT_BACKWARD_WEIGHT is `1`: write `beside` for a stream of its own, or unset it";
    assert!(!succeeds && told.contains(expected), "{told}");
}
