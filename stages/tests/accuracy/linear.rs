//! The linear layer: three matrix products, each number a sum of products.

use pipewright_stages::layers::{Layout, Linear};
use pipewright_stages::{Init, Layer};
use proptest::prelude::*;

use crate::approx::{Approx, assert_within};
use crate::inputs::{Kind, draw, exact, kind, pass, set, size, tensor};

/// A sum of `k` products rounds at each: expected `sqrt(k)` roundings of its partial sums. Largest measured: 2.7.
const PRODUCT: f64 = 6.0;
/// The same for a sum of numbers. Largest measured: 1.7.
const BIAS: f64 = 4.0;

/// A matrix by row and column, for what reads it transposed too.
#[derive(Clone, Copy)]
struct Matrix<'a> {
    numbers: &'a [Approx],
    columns: usize,
    turned: bool,
}

impl<'a> Matrix<'a> {
    fn new(numbers: &'a [Approx], columns: usize) -> Self {
        Self {
            numbers,
            columns,
            turned: false,
        }
    }

    fn t(self) -> Self {
        Self {
            turned: !self.turned,
            ..self
        }
    }

    fn rows_and_columns(self) -> (usize, usize) {
        let rows = self.numbers.len() / self.columns;
        if self.turned {
            (self.columns, rows)
        } else {
            (rows, self.columns)
        }
    }

    fn at(self, row: usize, column: usize) -> Approx {
        let (row, column) = if self.turned { (column, row) } else { (row, column) };
        self.numbers[row * self.columns + column]
    }

    /// The matrix product.
    fn times(self, other: Self) -> Vec<Approx> {
        let ((rows, depth), (_, columns)) = (self.rows_and_columns(), other.rows_and_columns());
        (0..rows * columns)
            .map(|at| Approx::dot((0..depth).map(|k| (self.at(at / columns, k), other.at(k, at % columns)))))
            .collect()
    }
}

fn plus(a: &[Approx], b: &[Approx]) -> Vec<Approx> {
    a.iter().zip(b).map(|(&a, &b)| a + b).collect()
}

fn column_sums(numbers: &[Approx], columns: usize) -> Vec<Approx> {
    (0..columns)
        .map(|column| Approx::sum(numbers[column..].iter().step_by(columns).copied()))
        .collect()
}

/// Two micro-batches through all three functions, in a layout, with a bias or without one.
fn check(layout: Layout, bias: bool, kind: Kind, [rows, inputs, outputs]: [usize; 3]) {
    let mut layer = Linear::new("fc", layout, [inputs, outputs], Init::Zeros, 1);
    let weight = draw(kind, "weight", inputs * outputs);
    set(&mut layer, 0, weight.clone());
    let shift = draw(kind, "bias", if bias { outputs } else { 0 });
    if bias {
        layer = layer.with_bias(Init::Zeros);
        set(&mut layer, 1, shift.clone());
    }
    let (weight, shift) = (exact(&weight), exact(&shift));
    let weight = match layout {
        Layout::InOut => Matrix::new(&weight, outputs),
        Layout::OutIn => Matrix::new(&weight, inputs).t(),
    };
    let mut weight_grad = Vec::new();
    let mut all_grads = Vec::new();
    for micro_batch in ["first", "second"] {
        let x = draw(kind, &format!("{micro_batch} x"), rows * inputs);
        let dy = draw(kind, &format!("{micro_batch} dy"), rows * outputs);
        let (input, grad) = (
            tensor(&[rows, inputs], x.clone()),
            tensor(&[rows, outputs], dy.clone()),
        );
        let [output, input_grad] = pass(&mut layer, &input, &grad);
        let (x, dy) = (exact(&x), exact(&dy));
        let (x, grad) = (Matrix::new(&x, inputs), Matrix::new(&dy, outputs));
        let mut product = x.times(weight);
        if bias {
            product = product
                .chunks(outputs)
                .flat_map(|row| plus(row, &shift))
                .collect();
        }
        assert_within(PRODUCT, "linear: output", &output, &product);
        assert_within(
            PRODUCT,
            "linear: input gradient",
            &input_grad,
            &grad.times(weight.t()),
        );
        let added = match layout {
            Layout::InOut => x.t().times(grad),
            Layout::OutIn => grad.t().times(x),
        };
        weight_grad = if weight_grad.is_empty() {
            added
        } else {
            plus(&weight_grad, &added)
        };
        all_grads.extend(dy);
    }
    let parameters = layer.parameters();
    assert_within(
        PRODUCT,
        "linear: weight gradient",
        &parameters[0].grad,
        &weight_grad,
    );
    if bias {
        let sums = column_sums(&all_grads, outputs);
        assert_within(BIAS, "linear: bias gradient", &parameters[1].grad, &sums);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn three_products(rows in size(), inputs in size(), outputs in size(), kind in kind(), bias: bool, turned: bool) {
        let layout = if turned { Layout::OutIn } else { Layout::InOut };
        check(layout, bias, kind, [rows, inputs, outputs]);
    }
}

/// Each of the three sizes beyond a block of the depth, none a multiple of a tile.
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

#[test]
fn nan_stays_nan() {
    let mut layer = Linear::new("fc", Layout::InOut, [33, 17], Init::Normal(1.0), 1);
    let mut x = draw(Kind::Signed, "x", 3 * 33);
    x[40] = f32::NAN;
    let [output, _] = pass(&mut layer, &tensor(&[3, 33], x), &tensor(&[3, 17], vec![0.0; 51]));
    let rows: Vec<bool> = output
        .chunks(17)
        .map(|row| row.iter().all(|y| y.is_nan()))
        .collect();
    assert_eq!(rows, [false, true, false]);
    let weight_grad = &layer.parameters()[0].grad;
    let columns: Vec<bool> = weight_grad
        .chunks(17)
        .map(|row| row.iter().all(|y| y.is_nan()))
        .collect();
    assert_eq!(columns.iter().position(|&nan| nan), Some(7), "zero times NaN");
}
