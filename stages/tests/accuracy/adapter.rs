//! Low-rank adapters of linear layers: products, and sums of some columns.

use pipewright_stages::layers::Linear;
use pipewright_stages::{Init, Layer, Lora, Training};
use proptest::prelude::*;

use super::approx::{Approx, assert_within};
use super::inputs::{Kind, draw, exact, kind, pass, set, size, tensor};
use super::linear::Matrix;

/// Products one after the other. Largest measured: 2.4.
const PRODUCTS: f64 = 5.0;

const LORA: Lora = Lora { rank: 3, alpha: 1.5, dropout: 0.0, seed: 1 };

fn stored(numbers: Vec<Approx>) -> Vec<Approx> {
    numbers.into_iter().map(Approx::stored).collect()
}

/// A layer with two parts, over one micro-batch. The second part has an adapter, and only the adapter is
/// trained.
fn check(kind: Kind, [rows, inputs, first, second]: [usize; 4]) {
    let outputs = first + second;
    let mut layer = Linear::new("fc", [inputs, outputs], Init::Zeros, 1)
        .without_bias()
        .with_parts([("fc.q".to_owned(), first), ("fc.v".to_owned(), second)]);
    layer.adapt(&mut |target| (target == "fc.v").then_some(LORA)).unwrap();
    let rank = LORA.rank;
    let sizes = [("weight", outputs * inputs), ("a", rank * inputs), ("b", second * rank)];
    let numbers = sizes.map(|(name, count)| draw(kind, name, count));
    for (index, numbers) in numbers.iter().enumerate() {
        set(&mut layer, index, numbers.clone());
    }
    let frozen = Training { frozen: true, ..Training::default() };
    layer.parameters()[0].train_by(frozen);
    let [weight, a, b] = numbers.map(|numbers| exact(&numbers));

    let (x, dy) = (draw(kind, "x", rows * inputs), draw(kind, "dy", rows * outputs));
    let [output, input_grad] =
        pass(&mut layer, &tensor(&[rows, inputs], x.clone()), &tensor(&[rows, outputs], dy.clone()));

    let scale = Approx::exact(f64::from(LORA.scale()));
    let (x, dy) = (exact(&x), exact(&dy));
    let x = Matrix::new(&x, inputs);
    let [weight, a] = [&weight, &a].map(|numbers| Matrix::new(numbers, inputs));
    let b = Matrix::new(&b, rank);
    let mut expected = stored(x.times(weight.t()));
    let inner = stored(x.times(a.t()));
    let inner = Matrix::new(&inner, rank);
    let more = stored(inner.times(b.t()));
    let mut part = Vec::new();
    for ((row, more), dy) in expected.chunks_mut(outputs).zip(more.chunks(second)).zip(dy.chunks(outputs)) {
        for (number, &more) in row[first..].iter_mut().zip(more) {
            *number = (*number + scale * more).stored();
        }
        part.extend(dy[first..].iter().map(|&dy| (scale * dy).stored()));
    }
    assert_within(PRODUCTS, "adapter: output", &output, &expected);

    let part = Matrix::new(&part, second);
    let inner_grad = stored(part.times(b));
    let inner_grad = Matrix::new(&inner_grad, rank);
    let through = stored(Matrix::new(&dy, outputs).times(weight));
    let more = stored(inner_grad.times(a));
    let both = through.iter().zip(&more).map(|(&one, &other)| (one + other).stored());
    let both: Vec<Approx> = both.collect();
    assert_within(PRODUCTS, "adapter: input gradient", &input_grad, &both);

    let parameters = layer.parameters();
    assert!(parameters[0].grad.is_empty(), "a frozen weight has no gradient");
    let down = inner_grad.t().times(x);
    assert_within(PRODUCTS, "adapter: gradient of A", &parameters[1].grad, &down);
    let up = part.t().times(inner);
    assert_within(PRODUCTS, "adapter: gradient of B", &parameters[2].grad, &up);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn some_columns_of_any_size(
        rows in size(), inputs in size(), first in size(), second in size(), kind in kind(),
    ) {
        check(kind, [rows, inputs, first, second]);
    }
}

#[test]
fn large_sizes() {
    check(Kind::Signed, [130, 257, 65, 129]);
}
