//! Layer normalisation.

use pipewright_stages::Layer;
use pipewright_stages::layers::LayerNorm;
use proptest::prelude::*;
use proptest::sample::select;

use super::approx::{Approx, assert_within, stored};
use super::inputs::{Kind, draw, exact, kind, pass, set, size, tensor};

/// Mean, deviation, and numbers minus their mean. The expected error includes the cancellation. Largest
/// measured: 1.7.
const OUTPUT: f64 = 4.0;
/// Subtracts two means along a row. Largest measured: 3.2.
const INPUT_GRADIENT: f64 = 6.0;
/// Sums over rows. Largest measured: 1.9.
const WEIGHT_GRADIENT: f64 = 4.0;

/// The output of a row, its input gradient, and what it adds to the gradient of the gain.
fn formula(x: &[Approx], dy: &[Approx], gain: &[Approx], shift: &[Approx]) -> [Vec<Approx>; 3] {
    let count = Approx::exact(x.len() as f64);
    let mean_of = |numbers: &[Approx]| Approx::sum(numbers.iter().copied()) / count;
    let mean = mean_of(x);
    let centred: Vec<Approx> = x.iter().map(|&x| x - mean).collect();
    let variance = Approx::dot(centred.iter().map(|&x| (x, x))) / count;
    let scale = Approx::exact(1.0) / (variance + Approx::rounded(1e-5)).sqrt();
    let normal: Vec<Approx> = centred.into_iter().map(|x| x * scale).collect();
    let each = |f: &dyn Fn(usize) -> Approx| -> Vec<Approx> { (0..x.len()).map(f).collect() };
    let normal_grad = each(&|i| dy[i] * gain[i]);
    let along = Approx::dot(normal_grad.iter().copied().zip(normal.iter().copied())) / count;
    let total = mean_of(&normal_grad);
    [
        each(&|i| normal[i].times_plus(gain[i], shift[i]).stored()),
        each(&|i| (scale * (normal_grad[i] - total - normal[i] * along)).stored()),
        each(&|i| dy[i] * normal[i]),
    ]
}

fn check(x: &[f32], dy: &[f32], width: usize) {
    let mut layer = LayerNorm::new("norm", width);
    let [gain, shift] = ["gain", "shift"].map(|name| draw(Kind::Signed, name, width));
    set(&mut layer, 0, gain.clone());
    set(&mut layer, 1, shift.clone());
    let dims = [x.len() / width, width];
    let [output, input_grad] = pass(&mut layer, &tensor(&dims, x.to_vec()), &tensor(&dims, dy.to_vec()));
    let [x, dy, gain, shift] = [x, dy, &gain, &shift].map(exact);
    let rows: Vec<[Vec<Approx>; 3]> =
        x.chunks(width).zip(dy.chunks(width)).map(|(x, dy)| formula(x, dy, &gain, &shift)).collect();
    let part = |which: usize| -> Vec<Approx> { rows.iter().flat_map(|row| row[which].clone()).collect() };
    let columns = |numbers: &[Approx]| -> Vec<Approx> {
        (0..width).map(|column| Approx::sum(numbers[column..].iter().step_by(width).copied())).collect()
    };
    assert_within(OUTPUT, "layer norm: output", &output, &part(0));
    assert_within(INPUT_GRADIENT, "layer norm: input gradient", &input_grad, &part(1));
    let parameters = layer.parameters();
    assert_within(WEIGHT_GRADIENT, "layer norm: gain's gradient", &parameters[0].grad, &columns(&part(2)));
    assert_within(WEIGHT_GRADIENT, "layer norm: shift's gradient", &parameters[1].grad, &columns(&dy));
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

    /// The deviation is small compared with the mean, or very small itself.
    #[test]
    fn rows_far_from_zero(width in size(), shift in -1e4_f32..1e4, deviation in 1e-6_f32..10.0) {
        let mut x = draw(Kind::Signed, "x", 3 * width);
        x.iter_mut().for_each(|x| *x = stored(*x * deviation + shift));
        check(&x, &draw(Kind::Signed, "dy", 3 * width), width);
    }
}

#[test]
fn wide_rows() {
    for width in [264, 513, 768, 1016, 1032, 4099] {
        check(&draw(Kind::Positive, "x", 5 * width), &draw(Kind::Signed, "dy", 5 * width), width);
    }
}

#[test]
fn many_rows() {
    for width in [8, 9] {
        check(&draw(Kind::Signed, "x", 4400 * width), &draw(Kind::Signed, "dy", 4400 * width), width);
    }
}

#[test]
fn rows_of_one_number_and_rows_with_nan() {
    check(&[vec![0.0; 20], vec![3.1; 20]].concat(), &draw(Kind::Signed, "dy", 40), 20);
    let mut x = draw(Kind::Signed, "x", 60);
    x[25] = f32::NAN;
    let (input, grad) = (tensor(&[3, 20], x), tensor(&[3, 20], vec![1.0; 60]));
    let [output, input_grad] = pass(&mut LayerNorm::new("norm", 20), &input, &grad);
    for numbers in [output, input_grad] {
        let nan: Vec<usize> =
            numbers.chunks(20).map(|row| row.iter().filter(|x| x.is_nan()).count()).collect();
        assert_eq!(nan, [0, 20, 0]);
    }
}
