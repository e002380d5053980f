//! The linear layer: three matrix products. Each number is a sum of products.

use pipewright_stages::layers::{Layout, Linear};
use pipewright_stages::{Device, Init, Layer};
use proptest::prelude::*;

use super::approx::{Approx, assert_within};
use super::inputs::{Kind, back, draw, exact, kind, pass, set, size, tensor, there};
use super::place;
use crate::common::train;

/// A sum of `k` products rounds at each product. Its expected error is `sqrt(k)` roundings of its partial
/// sums. Largest measured: 2.8.
const PRODUCT: f64 = 6.0;
/// The same for a sum of numbers. Largest measured: 1.7.
const BIAS: f64 = 4.0;

/// A matrix, also readable as its transpose.
#[derive(Clone, Copy)]
pub(crate) struct Matrix<'a> {
    numbers: &'a [Approx],
    columns: usize,
    turned: bool,
}

impl<'a> Matrix<'a> {
    pub(crate) fn new(numbers: &'a [Approx], columns: usize) -> Self {
        Self { numbers, columns, turned: false }
    }

    pub(crate) fn t(self) -> Self {
        Self { turned: !self.turned, ..self }
    }

    fn rows_and_columns(self) -> (usize, usize) {
        let rows = self.numbers.len() / self.columns;
        if self.turned { (self.columns, rows) } else { (rows, self.columns) }
    }

    fn at(self, row: usize, column: usize) -> Approx {
        let (row, column) = if self.turned { (column, row) } else { (row, column) };
        self.numbers[row * self.columns + column]
    }

    /// The matrix product.
    pub(crate) fn times(self, other: Self) -> Vec<Approx> {
        let ((rows, depth), (_, columns)) = (self.rows_and_columns(), other.rows_and_columns());
        (0..rows * columns)
            .map(|at| Approx::dot((0..depth).map(|k| (self.at(at / columns, k), other.at(k, at % columns)))))
            .map(Approx::by_library)
            .collect()
    }
}

fn plus(a: &[Approx], b: &[Approx]) -> Vec<Approx> {
    a.iter().zip(b).map(|(&a, &b)| a + b).collect()
}

fn column_sums(numbers: &[Approx], columns: usize) -> Vec<Approx> {
    (0..columns).map(|column| Approx::sum(numbers[column..].iter().step_by(columns).copied())).collect()
}

/// A layer with numbers of a kind. Also returns its weight, and its bias or zeros.
fn linear(
    layout: Layout,
    bias: bool,
    kind: Kind,
    [inputs, outputs]: [usize; 2],
) -> (Linear, [Vec<Approx>; 2]) {
    let mut layer = Linear::new("fc", [inputs, outputs], Init::Zeros, 1).with_layout(layout).without_bias();
    let weight = draw(kind, "weight", inputs * outputs);
    let mut shift = vec![0.0; outputs];
    set(&mut layer, 0, weight.clone());
    if bias {
        layer = layer.with_bias(Init::Zeros);
        shift = draw(kind, "bias", outputs);
        set(&mut layer, 1, shift.clone());
    }
    (layer, [weight, shift].map(|numbers| exact(&numbers)))
}

/// Output, input gradient and weight gradient of a micro-batch.
fn products(
    layout: Layout,
    [weight, shift]: [&[Approx]; 2],
    x: Matrix<'_>,
    dy: Matrix<'_>,
) -> [Vec<Approx>; 3] {
    let product = x.times(match layout {
        Layout::InOut => Matrix::new(weight, dy.columns),
        Layout::OutIn => Matrix::new(weight, x.columns).t(),
    });
    // cuBLASLt may round a product before it adds the bias, where rows do not begin at multiples of 16 bytes.
    let is_aligned = [x.columns, dy.columns].iter().all(|columns| columns.is_multiple_of(8));
    let is_rounded_twice = matches!(place().device, Device::Cuda(_)) && !is_aligned;
    let product: Vec<Approx> = match is_rounded_twice {
        true => product.into_iter().map(Approx::stored).collect(),
        false => product,
    };
    let output = product.chunks(dy.columns).flat_map(|row| plus(row, shift)).collect();
    match layout {
        Layout::InOut => [output, dy.times(Matrix::new(weight, dy.columns).t()), x.t().times(dy)],
        Layout::OutIn => [output, dy.times(Matrix::new(weight, x.columns)), dy.t().times(x)],
    }
}

/// Runs two micro-batches through all three functions, in a layout, with or without a bias.
fn check(layout: Layout, bias: bool, kind: Kind, [rows, inputs, outputs]: [usize; 3]) {
    let (mut layer, [weight, shift]) = linear(layout, bias, kind, [inputs, outputs]);
    let mut weight_grad = vec![Approx::exact(0.0); weight.len()];
    let mut grads = Vec::new();
    for micro_batch in ["first", "second"] {
        let x = draw(kind, &format!("{micro_batch} x"), rows * inputs);
        let dy = draw(kind, &format!("{micro_batch} dy"), rows * outputs);
        let (operand, operand_grad) = (exact(&x), exact(&dy));
        let [output, input_grad] =
            pass(&mut layer, &tensor(&[rows, inputs], x), &tensor(&[rows, outputs], dy));
        let (x, dy) = (Matrix::new(&operand, inputs), Matrix::new(&operand_grad, outputs));
        let [y, dx, added] = products(layout, [&weight, &shift], x, dy);
        let [y, dx] = [y, dx].map(|numbers| numbers.into_iter().map(Approx::stored).collect::<Vec<_>>());
        assert_within(PRODUCT, "linear: output", &output, &y);
        assert_within(PRODUCT, "linear: input gradient", &input_grad, &dx);
        weight_grad = plus(&weight_grad, &added);
        grads.extend(operand_grad);
    }
    let parameters = layer.parameters();
    let got = &parameters[0].grad;
    assert_within(PRODUCT, "linear: weight gradient", got, &weight_grad);
    if bias {
        let sums = column_sums(&grads, outputs);
        assert_within(BIAS, "linear: bias gradient", &parameters[1].grad, &sums);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn three_products(
        rows in size(), inputs in size(), outputs in size(), kind in kind(), bias: bool, turned: bool,
    ) {
        let layout = if turned { Layout::OutIn } else { Layout::InOut };
        check(layout, bias, kind, [rows, inputs, outputs]);
    }
}

/// All three sizes are larger than a block of the depth, and none is a multiple of a tile.
#[test]
fn three_large_products() {
    for sizes in [[33, 1030, 257], [1030, 257, 33], [257, 33, 1030]] {
        for layout in [Layout::InOut, Layout::OutIn] {
            for kind in [Kind::Signed, Kind::Positive] {
                check(layout, true, kind, sizes);
            }
        }
    }
}

/// The product with what it is added to. Where cuBLASLt adds, the sum is rounded once.
#[test]
fn a_product_added_to_other_numbers() {
    for sizes @ [rows, inputs, outputs] in [[33, 64, 40], [5, 17, 33], [1, 128, 8]] {
        for (bias, kind) in [(true, Kind::Signed), (false, Kind::Positive)] {
            let (mut layer, [weight, shift]) = linear(Layout::InOut, bias, kind, [inputs, outputs]);
            layer.visit_parameters(&mut |parameter| parameter.move_to(place()).unwrap());
            let [x, onto] = [("x", inputs), ("onto", outputs)].map(|(name, width)| {
                let numbers = draw(kind, name, rows * width);
                (tensor(&[rows, width], numbers.clone()), exact(&numbers))
            });
            let added = layer.forward_onto(train(0), there(&x.0), there(&onto.0));
            let output = back(added.unwrap().0);
            let dy = Matrix::new(&onto.1, outputs);
            let [y, ..] = products(Layout::InOut, [&weight, &shift], Matrix::new(&x.1, inputs), dy);
            let is_on_gpu = matches!(place().device, Device::Cuda(_));
            let once = is_on_gpu && inputs.is_multiple_of(8) && outputs.is_multiple_of(8);
            let y: Vec<Approx> = match once {
                true => y,
                false => y.into_iter().map(Approx::stored).collect(),
            };
            let y: Vec<Approx> = plus(&y, &onto.1).into_iter().map(Approx::stored).collect();
            assert_within(PRODUCT, &format!("linear: onto, {sizes:?}"), output.f32(), &y);
        }
    }
}

/// Zero times NaN is NaN too.
#[test]
fn nan_stays_nan() {
    let (mut layer, _) = linear(Layout::InOut, false, Kind::Signed, [33, 17]);
    let mut x = draw(Kind::Signed, "x", 3 * 33);
    x[33 + 7] = f32::NAN;
    let [output, _] = pass(&mut layer, &tensor(&[3, 33], x), &tensor(&[3, 17], vec![0.0; 51]));
    let nan_rows = |numbers: &[f32]| -> Vec<usize> {
        let rows = numbers.chunks(17).enumerate();
        rows.filter(|(_, row)| row.iter().all(|y| y.is_nan())).map(|(index, _)| index).collect()
    };
    assert_eq!(nan_rows(&output), [1]);
    assert_eq!(nan_rows(&layer.parameters()[0].grad), [7]);
}
