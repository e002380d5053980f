//! Gated activations.

use pipewright_stages::layers::{GateForm, Gated};
use proptest::prelude::*;
use proptest::sample::select;

use super::approx::{Approx, assert_within, here};
use super::inputs::{Kind, draw, exact, kind, pass, size, tensor};
use super::pointwise::{gelu_exact, gelu_tanh, range};

/// A sigmoid of a polynomial, and products. Largest measured: 1.7.
const BY_SIGMOID: f64 = 4.0;
/// An error function and an exponential, and products. Largest measured: 2.5. On a GPU as for GELU.
const BY_ERROR_FUNCTION: [f64; 2] = [5.0, 7.0];

/// Value and derivative of `x s` with `s = sigmoid(x)`.
pub(crate) fn silu(x: Approx) -> [Approx; 2] {
    let [gate, rest] = [x, -x].map(Approx::sigmoid);
    let value = x * gate;
    [value, value.times_plus(rest, gate)]
}

fn check(form: GateForm, x: &[f32], dy: &[f32], width: usize) {
    let (limit, activation): (f64, fn(Approx) -> [Approx; 2]) = match form {
        GateForm::Silu => (BY_SIGMOID, silu),
        GateForm::GeluTanh => (BY_SIGMOID, gelu_tanh),
        GateForm::Gelu => (here(BY_ERROR_FUNCTION), gelu_exact),
    };
    let rows = x.len() / (2 * width);
    let mut layer = Gated::new("gated", form);
    let (input, grad) = (tensor(&[rows, 2 * width], x.to_vec()), tensor(&[rows, width], dy.to_vec()));
    let [output, input_grad] = pass(&mut layer, &input, &grad);
    let (mut outputs, mut grads) = (Vec::new(), Vec::new());
    for (x, dy) in exact(x).chunks(2 * width).zip(exact(dy).chunks(width)) {
        let (gates, others) = x.split_at(width);
        let values: Vec<[Approx; 2]> = gates.iter().map(|&gate| activation(gate)).collect();
        outputs.extend(values.iter().zip(others).map(|(value, &other)| (value[0] * other).stored()));
        let numbers = values.iter().zip(others).zip(dy);
        grads.extend(numbers.clone().map(|((value, &other), &dy)| (dy * other * value[1]).stored()));
        grads.extend(numbers.map(|((value, _), &dy)| (dy * value[0]).stored()));
    }
    assert_within(limit, &format!("gated, {form:?}: output"), &output, &outputs);
    assert_within(limit, &format!("gated, {form:?}: gradient"), &input_grad, &grads);
}

fn form() -> impl Strategy<Value = GateForm> {
    select(vec![GateForm::Silu, GateForm::GeluTanh, GateForm::Gelu])
}

#[test]
fn gates_over_their_range() {
    let gates = range();
    let width = gates.len();
    let x = [gates, draw(Kind::Signed, "x", width)].concat();
    for form in [GateForm::Silu, GateForm::GeluTanh, GateForm::Gelu] {
        check(form, &x, &draw(Kind::Signed, "dy", width), width);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn rows_of_any_width(rows in size(), width in size(), x in kind(), dy in kind(), form in form()) {
        let (x, dy) = (draw(x, "x", 2 * rows * width), draw(dy, "dy", rows * width));
        check(form, &x, &dy, width);
    }
}

#[test]
fn wide_rows() {
    for width in [255, 256, 520, 1536] {
        check(
            GateForm::Silu,
            &draw(Kind::Signed, "x", 2 * 3 * width),
            &draw(Kind::Signed, "dy", 3 * width),
            width,
        );
    }
}
