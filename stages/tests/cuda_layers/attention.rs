//! Attention on a GPU follows its formula, and gives the same bits every time.

use pipewright_stages::devices::FUSED_HEADS;
use pipewright_stages::layers::{Attention, Heads};

use super::*;

#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    batch: usize,
    pub(super) time: usize,
    pub(super) heads: Heads,
    window: Option<usize>,
}

impl Sizes {
    /// Heads that each have their own keys and values.
    pub(super) fn alone([batch, time, heads, width]: [usize; 4]) -> Self {
        Self::grouped([batch, time], [heads, heads, width], None)
    }

    pub(super) fn grouped(
        [batch, time]: [usize; 2],
        [query, key_value, width]: [usize; 3],
        window: Option<usize>,
    ) -> Self {
        Self { batch, time, heads: Heads { query, key_value, width }, window }
    }

    /// The length of a row of the output.
    fn dim(self) -> usize {
        self.heads.query * self.heads.width
    }

    /// The range of a query head's query, key or value in the input.
    fn input(self, part: usize, [b, h, row]: [usize; 3]) -> std::ops::Range<usize> {
        let Heads { query, key_value, width } = self.heads;
        let shared = h / (query / key_value);
        let vector = [h, query + shared, query + key_value + shared][part];
        let start = (b * self.time + row) * self.heads.row() + vector * width;
        start..start + width
    }

    /// The range of a query head's vector in the output.
    fn output(self, [b, h, row]: [usize; 3]) -> std::ops::Range<usize> {
        let start = (b * self.time + row) * self.dim() + h * self.heads.width;
        start..start + self.heads.width
    }
}

/// Input and output gradient. bf16 can represent all these numbers.
pub(super) fn draw(sizes: Sizes) -> [Vec<f32>; 2] {
    let rows = sizes.batch * sizes.time;
    [("qkv", rows * sizes.heads.row()), ("grad", rows * sizes.dim())].map(|(name, count)| {
        numbers(name, count).into_iter().map(|x| f32::from_bits((3.0 * x).to_bits() & 0xffff_0000)).collect()
    })
}

/// Output and input gradient of the layer on the device.
pub(super) fn on_gpu(sizes: Sizes, dtype: DType, [qkv, grad]: &[Vec<f32>; 2]) -> [Vec<f32>; 2] {
    let to = |dims: &[usize], numbers: &[f32]| {
        Tensor::from_vec(dims, numbers.to_vec()).unwrap().to(gpu(dtype)).unwrap()
    };
    let Sizes { batch, time, .. } = sizes;
    let mut layer = Attention::grouped("attn", sizes.heads, sizes.window).unwrap();
    let qkv = to(&[batch, time, sizes.heads.row()], qkv);
    let grad = to(&[batch, time, sizes.dim()], grad);
    let (out, qkv_grad) = pass(&mut layer, &qkv, &grad);
    [out, qkv_grad.unwrap()].map(here)
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn add(to: &mut [f64], factor: f64, row: &[f64]) {
    to.iter_mut().zip(row).for_each(|(to, x)| *to += factor * x);
}

/// Output and input gradient by the plain formula, with every score.
fn formula(sizes: Sizes, inputs: &[Vec<f32>; 2]) -> [Vec<f64>; 2] {
    let [qkv, grad] = inputs.each_ref().map(|x| x.iter().map(|&x| f64::from(x)).collect::<Vec<_>>());
    let (mut out, mut qkv_grad) = (vec![0.0; grad.len()], vec![0.0; qkv.len()]);
    let (time, heads) = (sizes.time, sizes.heads.query);
    let scale = 1.0 / (sizes.heads.width as f64).sqrt();
    let all = sizes.batch * heads * time;
    for (b, h, t) in (0..all).map(|i| (i / time / heads, i / time % heads, i % time)) {
        let at = |part, row| sizes.input(part, [b, h, row]);
        let own = sizes.output([b, h, t]);
        let first = sizes.window.map_or(0, |window| (t + 1).saturating_sub(window));
        let powers: Vec<f64> =
            (first..=t).map(|row| (scale * dot(&qkv[at(0, t)], &qkv[at(1, row)])).exp()).collect();
        let total: f64 = powers.iter().sum();
        for (row, power) in (first..).zip(&powers) {
            add(&mut out[own.clone()], power / total, &qkv[at(2, row)]);
        }
        let delta = dot(&out[own.clone()], &grad[own.clone()]);
        for (row, power) in (first..).zip(&powers) {
            let score_grad = scale * power / total * (dot(&grad[own.clone()], &qkv[at(2, row)]) - delta);
            add(&mut qkv_grad[at(0, t)], score_grad, &qkv[at(1, row)]);
            add(&mut qkv_grad[at(1, row)], score_grad, &qkv[at(0, t)]);
            add(&mut qkv_grad[at(2, row)], power / total, &grad[own.clone()]);
        }
    }
    [out, qkv_grad]
}

/// The root mean square of the differences, divided by the root mean square of the expected numbers.
fn distance(got: &[f32], expected: &[f64]) -> f64 {
    let squares = |numbers: &mut dyn Iterator<Item = f64>| numbers.map(|x| x * x).sum::<f64>();
    let away = squares(&mut got.iter().zip(expected).map(|(&x, y)| f64::from(x) - y));
    (away / squares(&mut expected.iter().copied())).sqrt()
}

/// bf16 has 8 bits. Each rounding is at most 2^-9, and the errors of a sum average out. Largest measured:
/// 0.0049.
const BF16: f64 = 0.01;
/// Largest measured: 4e-7.
const F32: f64 = 2e-6;

pub(super) fn check(dtype: DType, sizes: Sizes) {
    let inputs = draw(sizes);
    let (got, expected) = (on_gpu(sizes, dtype, &inputs), formula(sizes, &inputs));
    let most = if dtype == DType::F32 { F32 } else { BF16 };
    for (what, (got, expected)) in ["output", "input gradient"].into_iter().zip(got.iter().zip(&expected)) {
        let away = distance(got, expected);
        assert!(away < most, "{dtype} {sizes:?}: {what} is {away:.2e} away");
    }
}

#[test]
fn fused_attention_is_the_formula_at_every_edge_of_its_tiles() {
    if emulator::start().is_none() {
        return;
    }
    for time in [1, 2, 15, 17, 63, 64, 65, 130] {
        for width in FUSED_HEADS {
            check(DType::Bf16, Sizes::alone([2, time, 1, width]));
        }
        check(DType::Bf16, Sizes::alone([1, time, 2, 64]));
    }
}

#[test]
fn attention_of_any_head_width_is_the_formula() {
    if emulator::start().is_none() {
        return;
    }
    for dtype in [DType::F32, DType::Bf16] {
        for sizes in [[2, 1, 3, 8], [1, 65, 2, 24], [2, 33, 3, 72], [1, 7, 1, 1]] {
            check(dtype, Sizes::alone(sizes));
        }
        check(dtype, Sizes::grouped([2, 37], [6, 2, 24], None));
        for window in [1, 5, 36, 37, 100] {
            check(dtype, Sizes::grouped([1, 37], [3, 1, 17], Some(window)));
        }
    }
    check(DType::F32, Sizes::alone([1, 65, 2, 64]));
}

#[test]
fn fused_attention_has_groups_and_windows() {
    if emulator::start().is_none() {
        return;
    }
    for width in FUSED_HEADS {
        check(DType::Bf16, Sizes::grouped([2, 130], [3, 1, width], None));
        check(DType::Bf16, Sizes::grouped([1, 70], [4, 2, width], Some(40)));
        // Windows at the edges of a warp's rows, of a tile of keys and of a block, and beyond the sequence.
        for window in [1, 33, 64, 129, 300] {
            check(DType::Bf16, Sizes::grouped([1, 200], [2, 1, width], Some(window)));
        }
    }
}

#[test]
fn attention_gives_the_same_bits_every_time() {
    if emulator::start().is_none() {
        return;
    }
    for (dtype, width) in FUSED_HEADS.map(|width| (DType::Bf16, width)).into_iter().chain([(DType::F32, 24)])
    {
        let sizes = Sizes::grouped([2, 70], [6, 2, width], Some(50));
        let inputs = draw(sizes);
        let run = || on_gpu(sizes, dtype, &inputs).map(|numbers| bits(&numbers));
        assert_eq!(run(), run(), "{dtype}, heads of {width}");
    }
}

/// The output of one sequence that the layer gets in calls, which end at these rows.
fn written(layer: &mut Attention, sizes: Sizes, dtype: DType, qkv: &[f32], ends: &[usize]) -> Vec<f32> {
    let (row, mut past, mut output) = (sizes.heads.row(), 0, Vec::new());
    for &end in ends {
        let rows = qkv[past * row..end * row].to_vec();
        let rows = Tensor::from_vec(&[1, end - past, row], rows).unwrap();
        let rows = rows.to(gpu(dtype)).unwrap();
        output.extend(here(layer.forward_next(past, rows).unwrap()));
        past = end;
    }
    output
}

#[test]
fn tokens_that_follow_others_see_those_before_them() {
    if emulator::start().is_none() {
        return;
    }
    for (sizes, dtype) in [
        (Sizes::grouped([1, 23], [6, 2, 24], None), DType::F32),
        (Sizes::grouped([1, 23], [3, 1, 17], Some(5)), DType::F32),
        (Sizes::grouped([1, 23], [4, 2, 64], None), DType::Bf16),
        (Sizes::grouped([1, 23], [2, 2, 80], Some(9)), DType::Bf16),
    ] {
        let inputs = draw(sizes);
        let [expected, _] = formula(sizes, &inputs);
        let most = if dtype == DType::F32 { F32 } else { BF16 };
        let mut layer = Attention::grouped("attn", sizes.heads, sizes.window).unwrap();
        // A new text begins at 0, whatever was there before.
        for ends in [&[10, 11, 12, 13, 20, 21, 23][..], &[1, 9, 23], &[23]] {
            let got = written(&mut layer, sizes, dtype, &inputs[0], ends);
            let away = distance(&got, &expected);
            assert!(away < most, "{dtype} {sizes:?} {ends:?}: {away:.2e} away");
        }
        let rows = Tensor::zeros(&[1, 1, sizes.heads.row()]);
        let error = layer.forward_next(24, rows).unwrap_err().to_string();
        assert_eq!(error, "tokens cannot follow 24 others of the text: it has had 23");
    }
}

/// The keys of a text come in parts of 256. With a window, the first parts are not seen: in the last case by
/// the last tokens.
#[test]
fn next_tokens_see_long_texts_and_have_the_same_bits_in_any_calls() {
    if emulator::start().is_none() {
        return;
    }
    for (sizes, dtype) in [
        (Sizes::grouped([1, 516], [2, 2, 24], None), DType::F32),
        (Sizes::grouped([1, 516], [5, 1, 17], Some(250)), DType::F32),
        (Sizes::grouped([1, 516], [8, 2, 64], None), DType::Bf16),
        (Sizes::grouped([1, 516], [6, 1, 128], Some(257)), DType::Bf16),
        (Sizes::grouped([1, 516], [3, 3, 80], Some(12)), DType::Bf16),
        (Sizes::grouped([1, 516], [2, 1, 300], None), DType::Bf16),
        (Sizes::grouped([1, 560], [1, 1, 1024], Some(300)), DType::F32),
    ] {
        let inputs = draw(sizes);
        let [expected, _] = formula(sizes, &inputs);
        let most = if dtype == DType::F32 { F32 } else { BF16 };
        let mut layer = Attention::grouped("attn", sizes.heads, sizes.window).unwrap();
        let time = sizes.time;
        let ends = [vec![time - 6, time - 5, time - 4, time - 3, time], vec![time - 6, time]];
        let outputs = ends.map(|ends| {
            let got = written(&mut layer, sizes, dtype, &inputs[0], &ends);
            let away = distance(&got, &expected);
            assert!(away < most, "{dtype} {sizes:?} {ends:?}: {away:.2e} away");
            bits(&got)
        });
        assert_eq!(outputs[0], outputs[1], "{dtype} {sizes:?}");
    }
}

#[test]
fn heads_too_wide_for_a_gpu_are_refused() {
    if emulator::start().is_none() {
        return;
    }
    let said = refusal(DType::F32, [1, 2, 4096]);
    let expected = "heads of 4096 numbers are too wide for a GPU, which takes 3072: choose more heads";
    assert!(said.contains(expected), "{said}");
}

#[test]
fn heads_too_wide_for_the_kernel_of_next_tokens_are_refused() {
    if emulator::start().is_none() {
        return;
    }
    let mut layer = Attention::new("attn", 2056, 1).unwrap();
    let row = Tensor::zeros(&[1, 1, 3 * 2056]).to(gpu(DType::F32)).unwrap();
    layer.forward_next(0, row.clone()).unwrap();
    let said = layer.forward_next(1, row).unwrap_err().to_string();
    let expected = "heads of 2056 numbers are too wide for a GPU, which takes 2048: choose more heads";
    assert_eq!(said, expected);
}

#[test]
fn more_sequences_than_a_grid_is_deep_are_refused_by_fused_kernels() {
    if emulator::start().is_none() {
        return;
    }
    let said = refusal(DType::Bf16, [65_536, 1, 64]);
    let expected = "65536 sequences or documents at once are too many for a GPU's attention, which takes \
                    65535: choose smaller micro-batches";
    assert!(said.contains(expected), "{said}");
}

/// The error of attention with one head for an input of this batch, time and width.
fn refusal(dtype: DType, [batch, time, width]: [usize; 3]) -> String {
    let mut layer = Attention::new("attn", width, 1).unwrap();
    let input = Tensor::zeros(&[batch, time, 3 * width]).to(gpu(dtype)).unwrap();
    layer.forward(train(0), input).unwrap_err().to_string()
}
