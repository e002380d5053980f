//! Causal attention.

use pipewright_stages::Device;
use pipewright_stages::layers::Attention;
use proptest::prelude::*;
use proptest::sample::select;

use super::approx::{self, Approx, assert_within};
use super::inputs::{Kind, draw, exact, pass, tensor};
use super::place;

/// A mean with softmax weights. Largest measured: 3.0.
const OUTPUT: f64 = 6.0;
/// Sums of products of sums. Largest measured: 3.1.
const INPUT_GRADIENT: f64 = 6.0;

#[derive(Clone, Copy, Debug)]
struct Sizes {
    batch: usize,
    time: usize,
    heads: usize,
    width: usize,
}

/// The index of the part: queries, keys and values lie side by side.
const QUERY: usize = 0;
const KEY: usize = 1;
const VALUE: usize = 2;

impl Sizes {
    fn dim(self) -> usize {
        self.heads * self.width
    }

    /// The range of a head's vector in a row that has `parts` parts.
    fn vector(self, parts: usize, part: usize, [b, h, t]: [usize; 3]) -> std::ops::Range<usize> {
        let start = ((b * self.time + t) * parts + part) * self.dim() + h * self.width;
        start..start + self.width
    }
}

fn dot(a: &[Approx], b: &[Approx]) -> Approx {
    Approx::dot(a.iter().copied().zip(b.iter().copied()))
}

/// Adds `factor` times a vector to `to`.
fn add(to: &mut [Approx], factor: Approx, vector: &[Approx]) {
    to.iter_mut()
        .zip(vector)
        .for_each(|(to, &number)| *to = factor.times_plus(number, *to));
}

/// The mean of vectors, weighted by shares.
fn mean<'a>(shares: &[Approx], vectors: impl Iterator<Item = &'a [Approx]>) -> Vec<Approx> {
    let mut mean = Vec::new();
    for (&share, vector) in shares.iter().zip(vectors) {
        mean.resize(vector.len(), Approx::exact(0.0));
        add(&mut mean, share, vector);
    }
    mean
}

/// The softmax of scores.
fn softmax(scores: Vec<Approx>) -> Vec<Approx> {
    let largest = scores
        .iter()
        .fold(f64::NEG_INFINITY, |largest, score| largest.max(score.value));
    let powers: Vec<Approx> = scores
        .into_iter()
        .map(|score| (score - Approx::exact(largest)).exp())
        .collect();
    let total = Approx::sum(powers.iter().copied());
    powers.into_iter().map(|power| power / total).collect()
}

/// Numbers as they are stored between layers.
fn stored(numbers: Vec<Approx>) -> Vec<Approx> {
    numbers.into_iter().map(Approx::stored).collect()
}

/// Output and input gradient by the plain formula, with every score.
fn formula(x: &[Approx], dy: &[Approx], sizes: Sizes) -> [Vec<Approx>; 2] {
    let Sizes {
        batch,
        time,
        heads,
        width,
    } = sizes;
    let mut out = Vec::new();
    let mut dx = vec![Approx::exact(0.0); x.len()];
    let scale = Approx::rounded(1.0 / (width as f64).sqrt());
    for (b, t, h) in (0..batch * time * heads).map(|i| (i / heads / time, i / heads % time, i % heads)) {
        let at = |part, row| sizes.vector(3, part, [b, h, row]);
        let all = |part| (0..=t).map(move |row| &x[at(part, row)]);
        let (query, dy) = (&x[at(QUERY, t)], &dy[sizes.vector(1, 0, [b, h, t])]);
        let shares = softmax(all(KEY).map(|key| dot(query, key) * scale).collect());
        let kept: Vec<Approx> = shares.iter().map(|share| share.stored()).collect();
        let output = stored(mean(&kept, all(VALUE)));
        let along = dot(dy, &output);
        for (row, (&share, &kept)) in shares.iter().zip(&kept).enumerate() {
            let score_grad = (share * (dot(dy, &x[at(VALUE, row)]) - along)).stored() * scale;
            add(&mut dx[at(QUERY, t)], score_grad, &x[at(KEY, row)]);
            add(&mut dx[at(KEY, row)], score_grad, query);
            add(&mut dx[at(VALUE, row)], kept, dy);
        }
        // The error of `along` is the same in all terms of the sum, so it does not average out.
        add(
            &mut dx[at(QUERY, t)],
            along.slip() * scale,
            &mean(&shares, all(KEY)),
        );
        out.extend(output);
    }
    let dx = dx.into_iter().map(Approx::by_library);
    [out, stored(dx.collect())]
}

fn check(x: &[f32], dy: &[f32], sizes: Sizes) {
    let Sizes {
        batch, time, heads, ..
    } = sizes;
    let mut layer = Attention::new("attention", sizes.dim(), heads).unwrap();
    let input = tensor(&[batch, time, 3 * sizes.dim()], x.to_vec());
    let grad = tensor(&[batch, time, sizes.dim()], dy.to_vec());
    let [output, input_grad] = pass(&mut layer, &input, &grad);
    let [expected, expected_grad] = formula(&exact(x), &exact(dy), sizes);
    assert_within(OUTPUT, "attention: output", &output, &expected);
    assert_within(
        INPUT_GRADIENT,
        "attention: input gradient",
        &input_grad,
        &expected_grad,
    );
}

/// Inputs of the layer's size, times a factor, and an output gradient.
fn numbers(kind: Kind, sizes: Sizes, factor: f32) -> [Vec<f32>; 2] {
    let count = sizes.batch * sizes.time * sizes.dim();
    let mut x = draw(kind, "x", 3 * count);
    x.iter_mut().for_each(|x| *x = approx::stored(*x * factor));
    [x, draw(Kind::Signed, "dy", count)]
}

/// Whether the tests may run on an emulated GPU, which is slow.
fn is_slow() -> bool {
    place().device != Device::Cpu
}

fn kind() -> impl Strategy<Value = Kind> {
    select(vec![Kind::Signed, Kind::Positive, Kind::Tiny])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if is_slow() { 12 } else { 48 }))]

    #[test]
    fn any_size(
        batch in 1_usize..3,
        time in prop_oneof![select(vec![1_usize, 15, 16, 17, 33, 64, 65, 129]), 1_usize..80],
        heads in 1_usize..4,
        width in prop_oneof![select(vec![1_usize, 8, 16, 17, 32, 33, 64]), 1_usize..40],
        kind in kind(),
        factor in 0.1_f32..5.0,
    ) {
        let sizes = Sizes { batch, time, heads, width };
        let [x, dy] = numbers(kind, sizes, factor);
        check(&x, &dy, sizes);
    }
}

/// Sequences of several blocks of rows, with the heads of the usual models.
#[test]
fn long_sequences() {
    let slow = [(150, 64), (130, 128), (70, 20)];
    let fast = [(128, 32), (259, 64), (130, 128), (300, 20)];
    for &(time, width) in if is_slow() { &slow[..] } else { &fast } {
        let sizes = Sizes {
            batch: 1,
            time,
            heads: 2,
            width,
        };
        for kind in [Kind::Signed, Kind::Positive] {
            let [x, dy] = numbers(kind, sizes, 1.0);
            check(&x, &dy, sizes);
        }
    }
}

/// Scores up to a few hundred thousand: softmax chooses a single key, and nothing overflows.
#[test]
fn huge_scores() {
    let sizes = Sizes {
        batch: 1,
        time: 100,
        heads: 2,
        width: 4,
    };
    for factor in [30.0, 1e3] {
        let [x, dy] = numbers(Kind::Signed, sizes, factor);
        check(&x, &dy, sizes);
    }
}

/// NaN in a row spreads to that row and the later ones only.
#[test]
fn nan_stays_nan() {
    let sizes = Sizes {
        batch: 1,
        time: 40,
        heads: 1,
        width: 8,
    };
    for part in [QUERY, KEY, VALUE] {
        let [mut x, dy] = numbers(Kind::Signed, sizes, 1.0);
        x[sizes.vector(3, part, [0, 0, 20])][0] = f32::NAN;
        let mut layer = Attention::new("attention", sizes.dim(), 1).unwrap();
        let [output, _] = pass(
            &mut layer,
            &tensor(&[1, 40, 24], x.clone()),
            &tensor(&[1, 40, 8], dy.clone()),
        );
        let [expected, _] = formula(&exact(&x), &exact(&dy), sizes);
        for (at, (got, expected)) in output.iter().zip(&expected).enumerate() {
            assert!(
                got.is_nan() || !expected.value.is_nan(),
                "part {part}, number {at}"
            );
        }
    }
}
