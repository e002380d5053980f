//! Attention of the next tokens of a text, which see the keys and values of all tokens before them.

use multiversion::multiversion;

use crate::cpu::lanes::{dot, max};
use crate::cpu::parts::{By, cut};
use crate::cpu::real::Real;
use crate::cpu::softmax::exp_and_sum;
use crate::layers::attention::cpu::sizes::Sizes;

/// The keys and values of the tokens so far, for each key and value head: `[tokens, width]`.
#[derive(Debug, Default)]
pub(crate) struct Past {
    keys: Vec<Vec<f32>>,
    values: Vec<Vec<f32>>,
}

impl Past {
    /// Keeps the keys and values of these rows. Their tokens come after the first `past` tokens.
    pub(crate) fn add<N: Real>(&mut self, past: usize, qkv: &[N], sizes: Sizes) {
        self.keys.resize_with(sizes.key_value, Vec::new);
        self.values.resize_with(sizes.key_value, Vec::new);
        for head in 0..sizes.key_value {
            let [key, value] = sizes.key_and_value(head);
            for (kept, vector) in [(&mut self.keys[head], key), (&mut self.values[head], value)] {
                kept.truncate(past * sizes.width);
                for row in qkv.chunks_exact(sizes.vectors() * sizes.width) {
                    let numbers = &row[vector * sizes.width..][..sizes.width];
                    kept.extend(numbers.iter().map(|number| number.wide()));
                }
            }
        }
    }

    /// Attention of the queries of these rows, whose keys and values have been added.
    pub(crate) fn attend<N: Real>(&self, out: &mut [N], qkv: &[N], past: usize, sizes: Sizes) {
        let row = sizes.vectors() * sizes.width;
        let weight = 2 * (past + sizes.time) * sizes.width;
        cut(By(out, sizes.width), weight, |first, out| {
            let mut scores = Vec::new();
            let mut query = vec![0.0; sizes.width];
            let mut result = vec![0.0; sizes.width];
            for (index, out) in (first..).zip(out.chunks_exact_mut(sizes.width)) {
                let (token, head) = (index / sizes.query, index % sizes.query);
                let numbers = &qkv[token * row + head * sizes.width..][..sizes.width];
                for (query, number) in query.iter_mut().zip(numbers) {
                    *query = number.wide() * sizes.scale();
                }
                let seen = sizes.first_key(past + token) * sizes.width..(past + token + 1) * sizes.width;
                let group = head / sizes.group();
                let (keys, values) = (&self.keys[group][seen.clone()], &self.values[group][seen]);
                attend_one(&mut result, &mut scores, &query, keys, values);
                for (out, &number) in out.iter_mut().zip(&result) {
                    *out = N::narrow(number);
                }
            }
        });
    }
}

#[multiversion(targets = "simd")]
fn attend_one(result: &mut [f32], scores: &mut Vec<f32>, query: &[f32], keys: &[f32], values: &[f32]) {
    let width = query.len();
    scores.clear();
    scores.extend(keys.chunks_exact(width).map(|key| dot(query, key)));
    let largest = max(scores);
    let scale = 1.0 / exp_and_sum(scores, largest);
    result.fill(0.0);
    for (&score, value) in scores.iter().zip(values.chunks_exact(width)) {
        for (sum, &number) in result.iter_mut().zip(value) {
            *sum = number.mul_add(score * scale, *sum);
        }
    }
}
