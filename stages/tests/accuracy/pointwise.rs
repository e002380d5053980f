//! Layers that work on single numbers, or only move numbers.

use pipewright_stages::layers::{Block, Dropout, Embedding, Flatten, Gelu, GeluForm, Relu, Sigmoid};
use pipewright_stages::{Init, Layer, chain};
use proptest::prelude::*;

use super::approx::{Approx, assert_within, here, stored};
use super::inputs::{Kind, draw, exact, kind, pass, pass_any, set, size, tensor};
use crate::common::{self, ids};

/// One operation, correctly rounded.
const EXACT: f64 = 1.0;
/// A sum of gradients. Largest measured: 1.5.
const SUM: f64 = 3.0;
/// Products of equal numbers, whose errors are not independent. Largest measured: 1.4.
const PRODUCT: f64 = 3.0;
/// A product with a rounded factor. Largest measured: 1.4.
const SCALED: f64 = 2.0;
/// A sigmoid. Largest measured: 1.5.
const SIGMOID: f64 = 3.0;
/// A sigmoid of a polynomial. Largest measured: 1.7.
const GELU_TANH: f64 = 4.0;
/// An error function and an exponential. Largest measured: 2.4. On a GPU `erfcf` may err by 4 units in the
/// last place, so by 8 roundings: with such errors 6.3 was measured on the emulator.
const GELU_EXACT: [f64; 2] = [5.0, 7.0];

/// Value and derivative of GELU in its tanh form: `x s` with `s = sigmoid(2 u)` and
/// `u = sqrt(2 / pi) (x + 0.044715 x^3)`.
pub(crate) fn gelu_tanh(x: Approx) -> [Approx; 2] {
    let one = Approx::exact(1.0);
    let slope = Approx::rounded((8.0 / std::f64::consts::PI).sqrt());
    let [cubic, cubic_slope] = [0.044_715, 3.0 * 0.044_715].map(Approx::rounded);
    let steps = slope * x * (cubic * x).times_plus(x, one);
    let [gate, rest] = [steps, -steps].map(Approx::sigmoid);
    let inner = slope * (cubic_slope * x).times_plus(x, one);
    [x * gate, (x * inner * gate).times_plus(rest, gate)]
}

/// Value and derivative of GELU in its exact form.
pub(crate) fn gelu_exact(x: Approx) -> [Approx; 2] {
    let half = Approx::exact(0.5);
    let size = if x.value < 0.0 { -x } else { x };
    let tail = half * (size * Approx::rounded(0.5_f64.sqrt())).erfc();
    let normal = if x.value < 0.0 { tail } else { Approx::exact(1.0) - tail };
    let height = Approx::rounded(1.0 / std::f64::consts::TAU.sqrt());
    [x * normal, (x * height).times_plus((-half * x * x).exp(), normal)]
}

fn sigmoid(x: Approx) -> [Approx; 2] {
    let [value, rest] = [x, -x].map(Approx::sigmoid);
    [value, value * rest]
}

/// The same function and derivative, with the value as it is stored.
fn storing(formula: impl Fn(Approx) -> [Approx; 2]) -> impl Fn(Approx) -> [Approx; 2] {
    move |x| {
        let [value, slope] = formula(x);
        [value.stored(), slope]
    }
}

/// Checks output and input gradient of a layer against this function and derivative.
fn check(
    limit: f64,
    layer: &mut dyn Layer,
    x: Vec<f32>,
    dy: &[f32],
    formula: impl Fn(Approx) -> [Approx; 2],
) {
    let count = x.len();
    let [output, grad] = pass(layer, &tensor(&[count], x.clone()), &tensor(&[count], dy.to_vec()));
    let (values, slopes): (Vec<Approx>, Vec<Approx>) =
        exact(&x).into_iter().map(|x| formula(x).into()).unzip();
    let slopes: Vec<Approx> =
        slopes.into_iter().zip(exact(dy)).map(|(slope, dy)| (slope * dy).stored()).collect();
    let name = layer.name().to_owned();
    assert_within(limit, &format!("{name}: output"), &output, &values);
    assert_within(limit, &format!("{name}: gradient"), &grad, &slopes);
}

/// Numbers over the whole range, with its ends, tiny numbers and NaN.
pub(crate) fn range() -> Vec<f32> {
    let steps = (-32_000..=32_000).map(|step| step as f32 * 1e-3 + 1.7e-4);
    let ends = [0.0, -0.0, 1e-20, -1e-20, 1e-40, -1e-40, 1e4, -1e4, f32::NAN];
    steps.chain(ends).map(stored).collect()
}

#[test]
fn gelu_and_sigmoid_over_their_range() {
    let x = range();
    let ones = vec![1.0; x.len()];
    check(GELU_TANH, &mut Gelu::new("gelu, tanh form", GeluForm::Tanh), x.clone(), &ones, storing(gelu_tanh));
    check(SIGMOID, &mut Sigmoid::new("sigmoid"), x.clone(), &ones, storing(sigmoid));
    check(
        here(GELU_EXACT),
        &mut Gelu::new("gelu, exact form", GeluForm::Exact),
        x,
        &ones,
        storing(gelu_exact),
    );
}

fn relu(x: Approx) -> [Approx; 2] {
    let [zero, one] = [0.0, 1.0].map(Approx::exact);
    if x.value <= 0.0 { [zero; 2] } else { [x, one] }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn gelu_sigmoid_and_relu_at_any_length(count in size(), kind in kind()) {
        let (x, dy) = (draw(kind, "x", count), draw(kind, "dy", count));
        let [mut tanh, mut exact] =
            [("gelu, tanh form", GeluForm::Tanh), ("gelu, exact form", GeluForm::Exact)]
                .map(|(name, form)| Gelu::new(name, form));
        check(GELU_TANH, &mut tanh, x.clone(), &dy, storing(gelu_tanh));
        check(here(GELU_EXACT), &mut exact, x.clone(), &dy, storing(gelu_exact));
        check(SIGMOID, &mut Sigmoid::new("sigmoid"), x.clone(), &dy, storing(sigmoid));
        check(EXACT, &mut Relu::new("relu"), x, &dy, relu);
    }

    #[test]
    fn dropout_scales_what_it_keeps_and_its_gradient_alike(
        count in size(), rate in 0.01_f32..0.95, kind in kind(),
    ) {
        let (x, dy) = (draw(kind, "x", count), draw(kind, "dy", count));
        let mut layer = Dropout::new("dropout", rate, 1).unwrap();
        let mask = common::forward(&mut layer, &tensor(&[count], vec![1.0; count]));
        let [output, grad] = pass(&mut layer, &tensor(&[count], x.clone()), &tensor(&[count], dy.clone()));
        let one = Approx::exact(1.0);
        let scaled = |numbers: &[f32]| -> Vec<Approx> {
            let kept = exact(numbers).into_iter().zip(mask.f32());
            kept.map(|(number, &kept)| {
                if kept == 0.0 {
                    Approx::exact(0.0)
                } else {
                    (number * (one / (one - Approx::exact(rate)))).stored()
                }
            }).collect()
        };
        assert_within(SCALED, "dropout: output", &output, &scaled(&x));
        assert_within(SCALED, "dropout: gradient", &grad, &scaled(&dy));
    }

    #[test]
    fn residual_adds_its_input(count in size(), kind in kind()) {
        let (x, dy) = (draw(kind, "x", count), draw(kind, "dy", count));
        let mut layer = Block::residual("residual", vec![Box::new(Relu::new("relu"))]);
        check(EXACT, &mut layer, x, &dy, |x| {
            let [inner, slope] = relu(x);
            [(inner + x).stored(), slope + Approx::exact(1.0)]
        });
    }

    #[test]
    fn branches_multiply_their_outputs(count in size(), kind in kind()) {
        let (x, dy) = (draw(kind, "x", count), draw(kind, "dy", count));
        let mut layer = Block::product("product", [chain![], chain![], chain![]]);
        let [output, grad] = pass(&mut layer, &tensor(&[count], x.clone()), &tensor(&[count], dy.clone()));
        let times = |a: Approx, b: Approx| (a * b).stored();
        let outputs: Vec<Approx> = exact(&x).into_iter().map(|x| times(times(x, x), x)).collect();
        assert_within(PRODUCT, "product: output", &output, &outputs);
        let grads = exact(&x).into_iter().zip(exact(&dy));
        let grads = grads.map(|(x, dy)| {
            let one = times(times(dy, x), x);
            ((one + one).stored() + one).stored()
        });
        assert_within(PRODUCT, "product: gradient", &grad, &grads.collect::<Vec<_>>());
    }

    #[test]
    fn columns_are_taken_and_put_back_as_they_are(
        rows in 1_usize..5, a in size(), b in size(), kind in kind(),
    ) {
        let dims = [rows, a + b];
        let (x, dy) = (draw(kind, "x", rows * (a + b)), draw(kind, "dy", rows * (a + b)));
        let mut layer = Block::concat("columns", [chain![], chain![]]).of_columns(&[a, b]);
        let [output, grad] = pass(&mut layer, &tensor(&dims, x.clone()), &tensor(&dims, dy.clone()));
        assert_eq!((output, grad), (x, dy));
    }

    #[test]
    fn embedding_adds_token_and_position_if_there_is_one(
        batch in prop_oneof![1_usize..4, Just(150)], time in 1_usize..9, dim in size(), kind in kind(),
        has_positions: bool, padding in prop::option::of(0_u32..5),
    ) {
        let (vocab, context) = (5, 8);
        let mut layer = if has_positions {
            Embedding::new("embed", vocab, context, dim, 1)
        } else {
            Embedding::of_tokens("embed", "table", vocab, dim, Init::Zeros, 1)
        };
        if let Some(token) = padding {
            layer = layer.with_padding(token).unwrap();
        }
        let input = ids("x", &[batch, time], vocab as u32);
        let dy = draw(kind, "dy", batch * time * dim);
        let [tokens, mut positions] = [vocab, context].map(|rows| draw(Kind::Signed, "weights", rows * dim));
        set(&mut layer, 0, tokens.clone());
        if has_positions {
            set(&mut layer, 1, positions.clone());
        } else {
            positions.fill(0.0);
        }
        let [tokens, positions] = [tokens, positions].map(|numbers| exact(&numbers));
        let (output, input_grad) = pass_any(&mut layer, &input, &tensor(&[batch, time, dim], dy.clone()));
        assert_eq!(input_grad, None);
        let mut sums = [vec![Approx::exact(0.0); vocab * dim], vec![Approx::exact(0.0); context * dim]];
        let mut expected = Vec::new();
        for (at, &dy) in dy.iter().enumerate() {
            let (row, column) = (at / dim, at % dim);
            let places = [input.ids()[row] as usize * dim + column, row % time * dim + column];
            expected.push((tokens[places[0]] + positions[places[1]]).stored());
            let is_padding = padding == Some(input.ids()[row]);
            for (sums, place) in sums.iter_mut().zip(places).skip(usize::from(is_padding)) {
                sums[place] = sums[place] + Approx::exact(dy);
            }
        }
        assert_within(EXACT, "embedding: output", output.f32(), &expected);
        for (parameter, sums) in layer.parameters().into_iter().zip(sums) {
            assert_within(SUM, "embedding: weight gradient", &parameter.grad, &sums);
        }
    }
}

#[test]
fn relu_keeps_nan() {
    let [output, _] =
        pass(&mut Relu::new("relu"), &tensor(&[2], vec![f32::NAN, -1.0]), &tensor(&[2], vec![1.0; 2]));
    assert!(output[0].is_nan() && output[1] == 0.0);
}

#[test]
fn flatten_keeps_the_batch_and_the_memory() {
    let input = tensor(&[2, 3, 4], draw(Kind::Signed, "x", 24));
    let output = common::forward(&mut Flatten::new("flatten"), &input);
    assert_eq!(output.dims(), [2, 12]);
    assert_eq!(output.memory(), input.memory());
}
