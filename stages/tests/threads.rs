//! Layers give the same bits for any number of threads.

mod common;

use std::thread;

use common::{ids, shuffle, tensor};
use pipewright_stages::layers::{
    Embedding, Experts, GateForm, Gated, Gelu, GeluForm, HeadNorm, Heads, LayerNorm, RmsNorm, Routing,
};
use pipewright_stages::{DType, Init, Layer, Place, Tensor, threads};

/// Output, input gradient and weight gradients.
fn run(layer: &mut dyn Layer, input: &Tensor, place: Place) -> Vec<Vec<f32>> {
    shuffle(layer);
    layer.visit_parameters(&mut |parameter| parameter.move_to(place).unwrap());
    let shape = layer.output_shape(input.shape()).unwrap();
    let [input, grad] =
        [input, &tensor("grad", shape.dims())].map(|tensor| tensor.clone().to(place).unwrap());
    let (output, input_grad) = common::pass(layer, &input, &grad);
    let tensors = [Some(output), input_grad].into_iter().flatten();
    tensors
        .map(|tensor| tensor.to(Place::default()).unwrap().f32().to_vec())
        .chain(layer.parameters().into_iter().map(|parameter| parameter.grad.to_vec()))
        .collect()
}

/// Enough rows that all threads get some, and a number that they cannot share evenly.
const ROWS: usize = 401;

fn assert_equal<L: Layer>(input: impl Fn() -> Tensor + Sync, make: impl Fn() -> L + Sync) {
    for dtype in [DType::F32, DType::Bf16] {
        let place = Place { dtype, ..Place::default() };
        // A thread gets helpers only once.
        let by = |count| {
            let run = || {
                let _helpers = threads::start(count, |_| {}).unwrap();
                run(&mut make(), &input(), place)
            };
            thread::scope(|scope| scope.spawn(run).join().unwrap())
        };
        let alone = by(1);
        for count in [2, 3, 5] {
            assert!(by(count) == alone, "{:?}, {count} threads, {dtype}", make());
        }
    }
}

#[test]
fn norms() {
    let input = || tensor("x", &[ROWS, 333]);
    assert_equal(input, || LayerNorm::new("norm", 333));
    assert_equal(input, || RmsNorm::new("norm", 333, 1e-5));
    let heads = Heads { query: 6, key_value: 2, width: 50 };
    assert_equal(|| tensor("x", &[ROWS, 500]), || HeadNorm::new("norm", heads, 1e-5));
}

#[test]
fn activations() {
    let input = || tensor("x", &[ROWS, 2 * 333]);
    assert_equal(input, || Gelu::new("gelu", GeluForm::Tanh));
    for form in [GateForm::Silu, GateForm::GeluTanh, GateForm::Gelu] {
        assert_equal(input, || Gated::new("gated", form));
    }
}

#[test]
fn experts() {
    let routing = Routing { experts: 4, chosen: 2, auxiliary: 0.1 };
    assert_equal(
        || tensor("x", &[ROWS, 96]),
        || Experts::new("experts", [96, 133], routing, Init::Normal(0.1), 1).unwrap(),
    );
}

#[test]
fn embeddings() {
    let input = || ids("x", &[1, ROWS], 11);
    assert_equal(input, || Embedding::of_tokens("embed", "table", 11, 333, Init::Normal(1.0), 1));
}
