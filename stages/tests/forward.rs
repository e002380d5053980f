//! Every layer's output against plain loops in double precision.

mod common;

use common::{assert_close, forward, ids, shuffle, tensor};
use pipewright_stages::layers::{
    Attention, Embedding, Flatten, Gelu, GeluForm, LayerNorm, Layout, Linear, Relu, Residual,
};
use pipewright_stages::{Init, Layer, Tensor};
use proptest::prelude::*;

fn doubles(numbers: &[f32]) -> Vec<f64> {
    numbers.iter().map(|&number| f64::from(number)).collect()
}

fn scaled(mut tensor: Tensor, factor: f32) -> Tensor {
    tensor.f32_mut().iter_mut().for_each(|number| *number *= factor);
    tensor
}

/// erf by its Taylor series: exact enough for `|x| < 5` in double precision.
fn erf(x: f64) -> f64 {
    let mut term = x;
    let mut sum = x;
    for n in 1..200 {
        term *= -x * x / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    sum * 2.0 / std::f64::consts::PI.sqrt()
}

/// Causal attention with every score written out.
fn attention(x: &[f64], batch: usize, time: usize, heads: usize, width: usize) -> Vec<f64> {
    let dim = heads * width;
    let mut out = vec![0.0; batch * time * dim];
    for (b, h, t) in (0..batch * heads * time).map(|i| (i / (heads * time), i / time % heads, i % time)) {
        let at = |row: usize, part: usize, i: usize| x[((b * time + row) * 3 + part) * dim + h * width + i];
        let score =
            |row: usize| (0..width).map(|i| at(t, 0, i) * at(row, 1, i)).sum::<f64>() / (width as f64).sqrt();
        let weights: Vec<f64> = (0..=t).map(|row| score(row).exp()).collect();
        let total: f64 = weights.iter().sum();
        for i in 0..width {
            let mixed: f64 = weights
                .iter()
                .enumerate()
                .map(|(row, weight)| weight * at(row, 2, i))
                .sum();
            out[(b * time + t) * dim + h * width + i] = mixed / total;
        }
    }
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn linear_is_a_matrix_product(rows in 1_usize..40, inputs in 1_usize..70, outputs in 1_usize..70, bias: bool, turned: bool) {
        let layout = if turned { Layout::OutIn } else { Layout::InOut };
        let mut layer = Linear::new("fc", layout, [inputs, outputs], Init::Normal(1.0), 1);
        if bias {
            layer = layer.with_bias(Init::Normal(1.0));
        }
        let input = tensor("x", &[rows, inputs]);
        let output = forward(&mut layer, &input);
        let parameters = layer.parameters();
        let weight = |i: usize, j: usize| if turned { i + j * inputs } else { i * outputs + j };
        let expected: Vec<f64> = (0..rows * outputs).map(|at| {
            let (row, j) = (at / outputs, at % outputs);
            let start = if bias { f64::from(parameters[1].value[j]) } else { 0.0 };
            (0..inputs).fold(start, |sum, i| {
                sum + f64::from(input.f32()[row * inputs + i]) * f64::from(parameters[0].value[weight(i, j)])
            })
        }).collect();
        assert_close("output", output.f32(), &expected, 1e-5);
    }

    #[test]
    fn attention_is_a_causal_softmax_mean(batch in 1_usize..3, time in 1_usize..150, heads in 1_usize..4, width in 1_usize..20, scale in 0.1_f32..5.0) {
        let input = scaled(tensor("x", &[batch, time, 3 * heads * width]), scale);
        let output = forward(&mut Attention::new("attention", heads * width, heads).unwrap(), &input);
        assert_eq!(output.dims(), [batch, time, heads * width]);
        assert_close("output", output.f32(), &attention(&doubles(input.f32()), batch, time, heads, width), 1e-5);
    }

    #[test]
    fn layer_norm_normalises_rows(rows in 1_usize..9, width in 1_usize..100, shift in -20.0_f32..20.0) {
        let mut layer = LayerNorm::new("norm", width);
        shuffle(&mut layer);
        let mut input = tensor("x", &[rows, width]);
        input.f32_mut().iter_mut().for_each(|x| *x += shift);
        let output = forward(&mut layer, &input);
        let parameters = layer.parameters();
        let expected: Vec<f64> = input.f32().chunks_exact(width).flat_map(|row| {
            let row = doubles(row);
            let mean = row.iter().sum::<f64>() / width as f64;
            let variance = row.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / width as f64;
            let normal = row.into_iter().map(move |x| (x - mean) / (variance + 1e-5).sqrt());
            normal.collect::<Vec<f64>>()
        }).enumerate().map(|(at, normal)| {
            let column = at % width;
            normal * f64::from(parameters[0].value[column]) + f64::from(parameters[1].value[column])
        }).collect();
        // The mean of numbers around 20 has lost what single precision loses there.
        assert_close("output", output.f32(), &expected, 1e-4);
    }

    #[test]
    fn embedding_adds_token_and_position(batch in 1_usize..4, time in 1_usize..9, dim in 1_usize..20) {
        let mut layer = Embedding::new("embed", 11, 8, dim, 1);
        let time = time.min(8);
        let input = ids("x", &[batch, time], 11);
        let output = forward(&mut layer, &input);
        let parameters = layer.parameters();
        for (at, &number) in output.f32().iter().enumerate() {
            let (row, column) = (at / dim, at % dim);
            let token = parameters[0].value[input.ids()[row] as usize * dim + column];
            assert_eq!(number, token + parameters[1].value[row % time * dim + column]);
        }
    }
}

#[test]
fn gelu_in_its_tanh_form() {
    let input = Tensor::from_vec(&[2001], (-1000..=1000).map(|i| i as f32 * 0.01).collect()).unwrap();
    let expected: Vec<f64> = doubles(input.f32())
        .into_iter()
        .map(|x| 0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x)).tanh()))
        .collect();
    let output = forward(&mut Gelu::new("gelu", GeluForm::Tanh), &input);
    assert_close("output", output.f32(), &expected, 1e-7);
}

#[test]
fn gelu_in_its_exact_form() {
    let input = Tensor::from_vec(&[1001], (-500..=500).map(|i| i as f32 * 0.01).collect()).unwrap();
    let expected: Vec<f64> = doubles(input.f32())
        .into_iter()
        .map(|x| 0.5 * x * (1.0 + erf(x / 2.0_f64.sqrt())))
        .collect();
    let output = forward(&mut Gelu::new("gelu", GeluForm::Exact), &input);
    assert_close("output", output.f32(), &expected, 2e-7);
}

#[test]
fn relu_cuts_below_zero_and_keeps_nan() {
    let input = Tensor::from_vec(&[4], vec![-1.0, 0.0, 2.0, f32::NAN]).unwrap();
    let output = forward(&mut Relu::new("relu"), &input);
    assert_eq!(output.f32()[..3], [0.0, 0.0, 2.0]);
    assert!(output.f32()[3].is_nan());
}

#[test]
fn residual_adds_its_input() {
    let input = tensor("x", &[3, 4]);
    let relu: Vec<Box<dyn Layer>> = vec![Box::new(Relu::new("relu"))];
    let output = forward(&mut Residual::new("block", relu), &input);
    let expected: Vec<f32> = input.f32().iter().map(|&x| x + x.max(0.0)).collect();
    assert_eq!(output.f32(), expected);
}

#[test]
fn flatten_keeps_the_batch() {
    let input = tensor("x", &[2, 3, 4]);
    let output = forward(&mut Flatten::new("flatten"), &input);
    assert_eq!(output.dims(), [2, 12]);
    assert_eq!(output.memory(), input.memory());
}

/// Large scores must not overflow: softmax takes the largest off first.
#[test]
fn attention_with_large_scores_stays_finite() {
    let input = scaled(tensor("x", &[1, 100, 24]), 1e3);
    let output = forward(&mut Attention::new("attention", 8, 2).unwrap(), &input);
    assert!(output.f32().iter().all(|number| number.is_finite()));
}
