//! RMSNorm of rows and of heads.

use pipewright_stages::Layer;
use pipewright_stages::layers::{HeadNorm, Heads, RmsNorm};
use proptest::prelude::*;
use proptest::sample::select;

use super::approx::{Approx, assert_within, stored};
use super::inputs::{Kind, draw, exact, kind, pass, set, size, tensor};

/// A root mean square and products. Largest measured: 1.9.
const OUTPUT: f64 = 4.0;
/// Subtracts a mean along a row. Largest measured: 2.2.
const INPUT_GRADIENT: f64 = 6.0;
/// Sums over rows. Largest measured: 1.6.
const WEIGHT_GRADIENT: f64 = 4.0;

const EPSILON: f32 = 1e-5;

/// The output of a row, its input gradient, and what it adds to the gradient of the gain.
fn formula(x: &[Approx], dy: &[Approx], gain: &[Approx]) -> [Vec<Approx>; 3] {
    let count = Approx::exact(x.len() as f64);
    let square = Approx::dot(x.iter().map(|&x| (x, x))) / count;
    let scale = Approx::exact(1.0) / (square + Approx::exact(EPSILON)).sqrt();
    let each = |f: &dyn Fn(usize) -> Approx| -> Vec<Approx> { (0..x.len()).map(f).collect() };
    let normal = each(&|i| x[i] * scale);
    let normal_grad = each(&|i| dy[i] * gain[i]);
    let along = Approx::dot(normal_grad.iter().copied().zip(normal.iter().copied())) / count;
    [
        each(&|i| (normal[i] * gain[i]).stored()),
        each(&|i| (scale * (normal_grad[i] - normal[i] * along)).stored()),
        each(&|i| dy[i] * normal[i]),
    ]
}

/// The sums of the columns of rows.
fn columns(rows: &[Vec<Approx>], width: usize) -> Vec<Approx> {
    (0..width).map(|column| Approx::sum(rows.iter().map(|row| row[column]))).collect()
}

fn assert_gain_grad(what: &str, layer: &mut dyn Layer, which: usize, rows: &[Vec<Approx>]) {
    let parameters = layer.parameters();
    let expected = columns(rows, parameters[which].value.len());
    assert_within(WEIGHT_GRADIENT, what, &parameters[which].grad, &expected);
}

fn check(x: &[f32], dy: &[f32], width: usize) {
    let mut layer = RmsNorm::new("norm", width, EPSILON);
    let gain = draw(Kind::Signed, "gain", width);
    set(&mut layer, 0, gain.clone());
    let dims = [x.len() / width, width];
    let [output, input_grad] = pass(&mut layer, &tensor(&dims, x.to_vec()), &tensor(&dims, dy.to_vec()));
    let [x, dy, gain] = [x, dy, &gain].map(exact);
    let rows = x.chunks(width).zip(dy.chunks(width));
    let rows: Vec<[Vec<Approx>; 3]> = rows.map(|(x, dy)| formula(x, dy, &gain)).collect();
    let part = |which: usize| -> Vec<Vec<Approx>> { rows.iter().map(|row| row[which].clone()).collect() };
    assert_within(OUTPUT, "rms norm: output", &output, &part(0).concat());
    assert_within(INPUT_GRADIENT, "rms norm: input gradient", &input_grad, &part(1).concat());
    assert_gain_grad("rms norm: gain's gradient", &mut layer, 0, &part(2));
}

fn check_heads(x: &[f32], dy: &[f32], heads: Heads) {
    let mut layer = HeadNorm::new("norm", heads, EPSILON);
    let gains = ["query gain", "key gain"].map(|name| draw(Kind::Signed, name, heads.width));
    for (which, gain) in gains.iter().enumerate() {
        set(&mut layer, which, gain.clone());
    }
    let row = (heads.query + 2 * heads.key_value) * heads.width;
    let dims = [x.len() / row, row];
    let [output, input_grad] = pass(&mut layer, &tensor(&dims, x.to_vec()), &tensor(&dims, dy.to_vec()));
    let [x, dy] = [x, dy].map(exact);
    let gains = gains.map(|gain| exact(&gain));
    let (mut outputs, mut input_grads, mut gain_grads) = (Vec::new(), Vec::new(), [Vec::new(), Vec::new()]);
    let numbers = x.chunks(heads.width).zip(dy.chunks(heads.width));
    for (index, (x, dy)) in numbers.enumerate() {
        let head = index % (heads.query + 2 * heads.key_value);
        if head >= heads.query + heads.key_value {
            outputs.extend(x);
            input_grads.extend(dy);
            continue;
        }
        let which = usize::from(head >= heads.query);
        let [output, input_grad, gain_grad] = formula(x, dy, &gains[which]);
        outputs.extend(output);
        input_grads.extend(input_grad);
        gain_grads[which].push(gain_grad);
    }
    assert_within(OUTPUT, "head norm: output", &output, &outputs);
    assert_within(INPUT_GRADIENT, "head norm: input gradient", &input_grad, &input_grads);
    for (which, rows) in gain_grads.iter().enumerate() {
        assert_gain_grad("head norm: gain's gradient", &mut layer, which, rows);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn rows_of_any_width(
        rows in size(), width in size(), x in kind(),
        dy in select(vec![Kind::Signed, Kind::Positive, Kind::Wide, Kind::Tiny]),
    ) {
        let count = rows * width;
        check(&draw(x, "x", count), &draw(dy, "dy", count), width);
    }

    #[test]
    fn heads_of_any_number_and_width(
        rows in 1_usize..40, key_value in 1_usize..4, shared in 1_usize..4, width in size(), x in kind(),
    ) {
        let heads = Heads { query: key_value * shared, key_value, width };
        let count = rows * (heads.query + 2 * key_value) * width;
        check_heads(&draw(x, "x", count), &draw(Kind::Signed, "dy", count), heads);
    }

    /// The epsilon and the mean square are of one size, or the epsilon is small beside it.
    #[test]
    fn rows_of_any_size(width in size(), size in 1e-4_f32..1e4) {
        let mut x = draw(Kind::Signed, "x", 3 * width);
        x.iter_mut().for_each(|x| *x = stored(*x * size));
        check(&x, &draw(Kind::Signed, "dy", 3 * width), width);
    }
}

#[test]
fn wide_rows() {
    for width in [264, 513, 576, 768, 1016, 1032, 4099] {
        check(&draw(Kind::Positive, "x", 5 * width), &draw(Kind::Signed, "dy", 5 * width), width);
    }
}

#[test]
fn many_rows() {
    for width in [8, 9] {
        let count = 4400 * width;
        check(&draw(Kind::Signed, "x", count), &draw(Kind::Signed, "dy", count), width);
    }
    let heads = Heads { query: 2, key_value: 1, width: 8 };
    let count = 2200 * 4 * heads.width;
    check_heads(&draw(Kind::Signed, "x", count), &draw(Kind::Signed, "dy", count), heads);
}

#[test]
fn rows_of_zeros_and_rows_with_nan() {
    check(&[0.0; 20], &draw(Kind::Signed, "dy", 20), 20);
    let mut x = draw(Kind::Signed, "x", 60);
    x[25] = f32::NAN;
    let (input, grad) = (tensor(&[3, 20], x), tensor(&[3, 20], vec![1.0; 60]));
    let [output, input_grad] = pass(&mut RmsNorm::new("norm", 20, EPSILON), &input, &grad);
    for numbers in [output, input_grad] {
        let rows = numbers.chunks(20);
        let nan: Vec<usize> = rows.map(|row| row.iter().filter(|x| x.is_nan()).count()).collect();
        assert_eq!(nan, [0, 20, 0]);
    }
}
