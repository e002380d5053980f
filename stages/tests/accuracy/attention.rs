//! Causal attention.

use pipewright_stages::Device;
use pipewright_stages::layers::{Attention, Heads};
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
    heads: Heads,
    window: Option<usize>,
}

/// Heads that each have their own keys and values.
fn alone(heads: usize, width: usize) -> Heads {
    Heads { query: heads, key_value: heads, width }
}

/// The index of the part: queries, keys and values lie side by side.
const QUERY: usize = 0;
const KEY: usize = 1;
const VALUE: usize = 2;

impl Sizes {
    /// The dimensions of input and output.
    fn dims(self) -> [[usize; 3]; 2] {
        let Self { batch, time, heads, .. } = self;
        [heads.row(), heads.query * heads.width].map(|row| [batch, time, row])
    }

    /// The range of a query head's query, key or value in the input.
    fn input(self, part: usize, [b, h, t]: [usize; 3]) -> std::ops::Range<usize> {
        let Heads { query, key_value, width } = self.heads;
        let shared = h / (query / key_value);
        let vector = [h, query + shared, query + key_value + shared][part];
        let start = (b * self.time + t) * self.heads.row() + vector * width;
        start..start + width
    }

    /// The range of a query head's vector in the output.
    fn output(self, [b, h, t]: [usize; 3]) -> std::ops::Range<usize> {
        let Heads { query, width, .. } = self.heads;
        let start = ((b * self.time + t) * query + h) * width;
        start..start + width
    }

    /// The keys that a query sees.
    fn keys(self, t: usize) -> std::ops::RangeInclusive<usize> {
        self.window.map_or(0, |window| (t + 1).saturating_sub(window))..=t
    }

    fn layer(self) -> Attention {
        let Heads { query, key_value, width } = self.heads;
        if query == key_value && self.window.is_none() {
            return Attention::new("attention", query * width, query).unwrap();
        }
        Attention::grouped("attention", self.heads, self.window).unwrap()
    }
}

fn dot(a: &[Approx], b: &[Approx]) -> Approx {
    Approx::dot(a.iter().copied().zip(b.iter().copied()))
}

/// Adds `factor` times a vector to `to`.
fn add(to: &mut [Approx], factor: Approx, vector: &[Approx]) {
    to.iter_mut().zip(vector).for_each(|(to, &number)| *to = factor.times_plus(number, *to));
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
    let largest = scores.iter().fold(f64::NEG_INFINITY, |largest, score| largest.max(score.value));
    let powers: Vec<Approx> =
        scores.into_iter().map(|score| (score - Approx::exact(largest)).exp()).collect();
    let total = Approx::sum(powers.iter().copied());
    powers.into_iter().map(|power| power / total).collect()
}

/// Numbers as they are stored between layers.
fn stored(numbers: Vec<Approx>) -> Vec<Approx> {
    numbers.into_iter().map(Approx::stored).collect()
}

/// Output and input gradient by the plain formula, with every score.
fn formula(x: &[Approx], dy: &[Approx], sizes: Sizes) -> [Vec<Approx>; 2] {
    let Sizes { batch, time, .. } = sizes;
    let Heads { query: heads, width, .. } = sizes.heads;
    let mut out = Vec::new();
    let mut dx = vec![Approx::exact(0.0); x.len()];
    let scale = Approx::rounded(1.0 / (width as f64).sqrt());
    for (b, t, h) in (0..batch * time * heads).map(|i| (i / heads / time, i / heads % time, i % heads)) {
        let at = |part, row| sizes.input(part, [b, h, row]);
        let all = |part| sizes.keys(t).map(move |row| &x[at(part, row)]);
        let (query, dy) = (&x[at(QUERY, t)], &dy[sizes.output([b, h, t])]);
        let shares = softmax(all(KEY).map(|key| dot(query, key) * scale).collect());
        let kept: Vec<Approx> = shares.iter().map(|share| share.stored()).collect();
        let output = stored(mean(&kept, all(VALUE)));
        let along = dot(dy, &output);
        for (row, (&share, &kept)) in sizes.keys(t).zip(shares.iter().zip(&kept)) {
            let score_grad = (share * (dot(dy, &x[at(VALUE, row)]) - along)).stored() * scale;
            add(&mut dx[at(QUERY, t)], score_grad, &x[at(KEY, row)]);
            add(&mut dx[at(KEY, row)], score_grad, query);
            add(&mut dx[at(VALUE, row)], kept, dy);
        }
        // The error of `along` is the same in all terms of the sum, so it does not average out.
        add(&mut dx[at(QUERY, t)], along.slip() * scale, &mean(&shares, all(KEY)));
        out.extend(output);
    }
    let dx = dx.into_iter().map(Approx::by_library);
    [out, stored(dx.collect())]
}

/// Output and input gradient of the layer.
fn run(x: &[f32], dy: &[f32], sizes: Sizes) -> [Vec<f32>; 2] {
    let [input, output] = sizes.dims();
    let (x, dy) = (tensor(&input, x.to_vec()), tensor(&output, dy.to_vec()));
    pass(&mut sizes.layer(), &x, &dy)
}

fn check(x: &[f32], dy: &[f32], sizes: Sizes) {
    let [output, input_grad] = run(x, dy, sizes);
    let [expected, expected_grad] = formula(&exact(x), &exact(dy), sizes);
    assert_within(OUTPUT, "attention: output", &output, &expected);
    assert_within(INPUT_GRADIENT, "attention: input gradient", &input_grad, &expected_grad);
}

/// Inputs of the layer's size, times a factor, and an output gradient.
fn numbers(kind: Kind, sizes: Sizes, factor: f32) -> [Vec<f32>; 2] {
    let [input, output] = sizes.dims().map(|dims| dims.iter().product());
    let mut x = draw(kind, "x", input);
    x.iter_mut().for_each(|x| *x = approx::stored(*x * factor));
    [x, draw(Kind::Signed, "dy", output)]
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
        let sizes = Sizes { batch, time, heads: alone(heads, width), window: None };
        let [x, dy] = numbers(kind, sizes, factor);
        check(&x, &dy, sizes);
    }

    #[test]
    fn any_group_and_window(
        batch in 1_usize..3,
        time in prop_oneof![select(vec![1_usize, 31, 32, 33, 64, 65, 129]), 1_usize..80],
        key_value in 1_usize..3,
        group in select(vec![1_usize, 2, 3, 8]),
        width in select(vec![8_usize, 17, 24, 64, 80, 96, 112, 128, 256]),
        window in prop_oneof![Just(None), (1_usize..140).prop_map(Some)],
        kind in kind(),
    ) {
        let heads = Heads { query: group * key_value, key_value, width };
        let sizes = Sizes { batch, time, heads, window };
        let [x, dy] = numbers(kind, sizes, 1.0);
        check(&x, &dy, sizes);
    }
}

/// Sequences of several blocks of rows, with the heads of the usual models.
#[test]
fn long_sequences() {
    let slow = [(150, 64), (130, 128), (70, 20)];
    let fast = [(128, 32), (259, 64), (130, 128), (300, 20)];
    for &(time, width) in if is_slow() { &slow[..] } else { &fast } {
        let sizes = Sizes { batch: 1, time, heads: alone(2, width), window: None };
        for kind in [Kind::Signed, Kind::Positive] {
            let [x, dy] = numbers(kind, sizes, 1.0);
            check(&x, &dy, sizes);
        }
    }
}

/// Windows of several blocks, and within one, in sequences of several blocks.
#[test]
fn long_sequences_with_windows() {
    let (times, windows): (&[usize], &[usize]) = match is_slow() {
        true => (&[150], &[33, 100]),
        false => (&[150, 261], &[1, 7, 32, 64, 100, 149]),
    };
    for &time in times {
        for (query, key_value, width) in [(2, 1, 64), (1, 1, 96), (1, 1, 128), (3, 1, 20)] {
            for &window in windows {
                let sizes =
                    Sizes { batch: 1, time, heads: Heads { query, key_value, width }, window: Some(window) };
                let [x, dy] = numbers(Kind::Signed, sizes, 1.0);
                check(&x, &dy, sizes);
            }
        }
    }
}

/// NaN times a probability of 0 would be NaN.
#[test]
fn blocks_outside_the_window_are_not_read() {
    // By `wgmma`, 64 queries share tiles of 128 keys.
    let clean = if std::env::var_os("PIPEWRIGHT_ATTENTION").is_some() { 192 } else { 128 };
    for width in [64, 96, 128, 256, 24] {
        let sizes =
            Sizes { batch: 1, time: 200, heads: Heads { query: 2, key_value: 1, width }, window: Some(32) };
        let [mut x, dy] = numbers(Kind::Signed, sizes, 1.0);
        let row = sizes.heads.row();
        x[..64 * row].fill(f32::NAN);
        let [output, input_grad] = run(&x, &dy, sizes);
        assert!(output[..64 * 2 * width].iter().all(|number| number.is_nan()));
        assert!(output[clean * 2 * width..].iter().all(|number| number.is_finite()));
        assert!(input_grad[clean * row..].iter().all(|number| number.is_finite()));
    }
}

#[test]
fn query_heads_that_share_keys_and_values_equal_heads_with_copies_of_them() {
    for width in [24, 64] {
        let heads = Heads { query: 6, key_value: 2, width };
        let shared = Sizes { batch: 2, time: 70, heads, window: Some(1000) };
        let own = Sizes { heads: alone(6, width), window: None, ..shared };
        let [x, dy] = numbers(Kind::Signed, shared, 1.0);
        let mut copies = vec![0.0; own.dims()[0].iter().product()];
        for (b, h, t) in (0..2 * 6 * 70).map(|i| (i / 6 / 70, i % 6, i / 6 % 70)) {
            for part in [QUERY, KEY, VALUE] {
                copies[own.input(part, [b, h, t])].copy_from_slice(&x[shared.input(part, [b, h, t])]);
            }
        }
        assert_eq!(run(&x, &dy, shared)[0], run(&copies, &dy, own)[0]);
    }
}

/// Scores up to a few hundred thousand: softmax chooses a single key, and nothing overflows.
#[test]
fn huge_scores() {
    let sizes = Sizes { batch: 1, time: 100, heads: alone(2, 4), window: None };
    for factor in [30.0, 1e3] {
        let [x, dy] = numbers(Kind::Signed, sizes, factor);
        check(&x, &dy, sizes);
    }
}

/// NaN in a row spreads to that row and the later ones only.
#[test]
fn nan_stays_nan() {
    let sizes = Sizes { batch: 1, time: 40, heads: alone(1, 8), window: None };
    for part in [QUERY, KEY, VALUE] {
        let [mut x, dy] = numbers(Kind::Signed, sizes, 1.0);
        x[sizes.input(part, [0, 0, 20])][0] = f32::NAN;
        let [output, _] = run(&x, &dy, sizes);
        let [expected, _] = formula(&exact(&x), &exact(&dy), sizes);
        for (at, (got, expected)) in output.iter().zip(&expected).enumerate() {
            assert!(got.is_nan() || !expected.value.is_nan(), "part {part}, number {at}");
        }
    }
}
