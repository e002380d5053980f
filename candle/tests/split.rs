//! A linear layer whose weight gradient waits has the bits of candle's own.

use candle_core::{Device, Tensor as Candle, Var};
use candle_nn::{Module, VarBuilder, VarMap, linear};
use pipewright_candle::{CandleLayer, split_linear, split_linear_no_bias};
use pipewright_stages::testing::check_gradients;
use pipewright_stages::{Bytes, ForwardContext, Layer, Mode, Tensor};

const AT: ForwardContext = ForwardContext { step: 0, micro_batch: 0, mode: Mode::Train };

fn input() -> Tensor {
    let numbers = (0..24).map(|index| (index as f32 * 1.7).sin()).collect();
    Tensor::from_vec(&[2, 4, 3], numbers).expect("it fills the shape")
}

/// The output, the input gradient and the weight gradients of a layer.
fn numbers(mut layer: CandleLayer) -> Vec<Vec<f32>> {
    let (output, saved) = layer.forward(AT, input()).expect("forward");
    let mut all = vec![output.f32().to_vec()];
    let (input_grad, pending) = layer.backward_input(saved, output).expect("backward-input");
    all.push(input_grad.expect("numbers have one").f32().to_vec());
    layer.backward_weight(pending).expect("backward-weight");
    all.extend(layer.parameters().iter().map(|one| one.grad.to_vec()));
    all
}

#[test]
fn a_split_linear_has_the_bits_of_candle_s() {
    let split = CandleLayer::new("fc", 1, |weights| split_linear(3, 5, weights));
    let whole = CandleLayer::new("fc", 1, |weights| linear(3, 5, weights));
    assert_eq!(numbers(split.expect("it builds")), numbers(whole.expect("it builds")));
}

#[test]
fn a_matrix_that_is_used_twice_has_the_slopes_of_forward() {
    let twice = CandleLayer::new("fc", 1, |weights| {
        let linear = split_linear_no_bias(3, 3, weights)?;
        Ok(move |x: &Candle| linear.forward(&linear.forward(x)?.tanh()?))
    });
    check_gradients(twice.expect("it builds"), &input()).expect("the gradients are right");
}

#[test]
fn backward_input_keeps_what_the_weight_gradient_needs_and_not_the_gradient() {
    let mut layer =
        CandleLayer::new("fc", 1, |weights| split_linear_no_bias(3, 50, weights)).expect("it builds");
    let (output, saved) = layer.forward(AT, input()).expect("forward");
    let (_, pending) = layer.backward_input(saved, output).expect("backward-input");
    assert_eq!(pending.bytes(), 4 * (8 * 3 + 8 * 50), "the input and the output gradient");
}

#[test]
fn outside_of_a_layer_it_is_on_candle_s_tape() {
    let map = VarMap::new();
    let weights = VarBuilder::from_varmap(&map, candle_core::DType::F32, &Device::Cpu);
    let (split, whole) = (split_linear(3, 5, weights.clone()), linear(3, 5, weights));
    let x = Var::from_slice(input().f32(), (8, 3), &Device::Cpu).expect("a variable");
    let grads = |module: &dyn Module| {
        let grads = module.forward(&x).and_then(|y| y.sqr()?.sum_all()?.backward()).expect("backward");
        let flat = |var: &Var| grads.get(var).expect("a gradient").flatten_all()?.to_vec1::<f32>();
        map.all_vars().iter().chain([&x]).map(|var| flat(var).expect("f32")).collect::<Vec<_>>()
    };
    assert_eq!(grads(&split.expect("it builds")), grads(&whole.expect("it builds")));
}

#[test]
fn rows_of_another_length_are_refused() {
    let mut layer = CandleLayer::new("fc", 1, |weights| split_linear(4, 5, weights)).expect("it builds");
    let text = layer.forward(AT, input()).expect_err("rows of three").to_string();
    assert!(text.starts_with("fc: candle: expected 4 numbers in each row, got [2, 4, 3]"), "{text}");
}
