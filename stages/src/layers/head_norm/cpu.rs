//! RMSNorm of each head of queries and keys, which lie side by side in the row of a token.

use std::ops::Range;

use pulp::{Arch, Simd, WithSimd};

use crate::cpu::parts::{By, cut};
use crate::cpu::prefetch::LINE;
use crate::cpu::real::Real;
use crate::cpu::row_sums::{squares, totals};
use crate::layers::norm::cpu as norm;
use crate::threads;

/// How many heads ahead numbers are prefetched.
const AHEAD: usize = 16;

/// The rows of tokens. Each is `width` numbers wide and begins with the heads that are normalised, first the
/// queries, then the keys. What follows passes.
#[derive(Clone, Copy)]
pub(crate) struct Tokens<'a> {
    /// The number of heads of queries and of keys.
    pub(crate) heads: [usize; 2],
    /// The groups in which the gradients of the gains are added up: the keys before each, and all keys. Each
    /// key's queries are in its group.
    pub(crate) groups: &'a [usize],
    /// The gains of queries and of keys, as long as a head is wide.
    pub(crate) gains: [&'a [f32]; 2],
    /// The numbers in the row of a token.
    pub(crate) width: usize,
}

/// The queries or the keys of a group in the row of a token.
struct Group<'a> {
    numbers: Range<usize>,
    stats: Range<usize>,
    gain: &'a [f32],
}

impl<'a> Tokens<'a> {
    /// In turn the queries and the keys of each group.
    #[inline(always)]
    fn groups(self) -> impl Iterator<Item = Group<'a>> {
        let ([queries, keys], head) = (self.heads, self.gains[0].len());
        let group = move |heads: Range<usize>, gain| Group {
            numbers: heads.start * head..heads.end * head,
            stats: 2 * heads.start..2 * heads.end,
            gain,
        };
        let [query_gain, key_gain] = self.gains;
        self.groups.windows(2).flat_map(move |pair| {
            let (first, end) = (pair[0], pair[1]);
            [
                group(first * queries / keys..end * queries / keys, query_gain),
                group(queries + first..queries + end, key_gain),
            ]
        })
    }

    /// The statistics of a token: two numbers for each head that is normalised.
    fn stats(self) -> usize {
        2 * (self.heads[0] + self.heads[1])
    }
}

/// Normalises heads as [`norm::forward`] does rows without a shift, and copies what follows them.
pub(crate) fn forward<N: Real>(
    out: &mut [N],
    stats: &mut [f32],
    input: &[N],
    tokens: Tokens<'_>,
    epsilon: f32,
) {
    let (width, pairs) = (tokens.width, tokens.stats());
    let rows = ((By(out, width), By(stats, pairs)), By(input, width));
    cut(rows, 2 * width, |_, ((out, stats), input)| {
        Arch::new().dispatch(Forward { out, stats, input, tokens, epsilon });
    });
}

struct Forward<'a, N> {
    out: &'a mut [N],
    stats: &'a mut [f32],
    input: &'a [N],
    tokens: Tokens<'a>,
    epsilon: f32,
}

impl<N: Real> WithSimd for Forward<'_, N> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        // Loops over a number of registers that the compiler knows are no loops.
        match self.tokens.gains[0].len() {
            64 => self.of(simd, 64),
            128 => self.of(simd, 128),
            head => self.of(simd, head),
        }
    }
}

impl<N: Real> Forward<'_, N> {
    #[inline(always)]
    fn of<S: Simd>(self, simd: S, head: usize) {
        let (tokens, width) = (self.tokens, self.tokens.width);
        let rows = self.out.chunks_exact_mut(width).zip(self.input.chunks_exact(width));
        for ((out, row), stats) in rows.zip(self.stats.chunks_exact_mut(tokens.stats())) {
            let end = (tokens.heads[0] + tokens.heads[1]) * head;
            for Group { numbers, stats: of_group, gain } in tokens.groups() {
                let (out, row) = (&mut out[numbers.clone()], &row[numbers]);
                let heads = out.chunks_exact_mut(head).zip(row.chunks_exact(head));
                for ((out, row), stats) in heads.zip(stats[of_group].as_chunks_mut().0) {
                    let square = squares(simd, row, 0.0, AHEAD * head) / head as f32;
                    let scale = 1.0 / (square + self.epsilon).sqrt();
                    *stats = [0.0, scale];
                    norm::scale_row(out, row, scale, &gain[..head]);
                }
            }
            out[end..].copy_from_slice(&row[end..]);
        }
    }
}

/// Turns the output gradient into the input gradient, in place, and adds the gradients of the gains to
/// `gain_grads`: of each group, a row for the queries and one for the keys. The threads share the tokens for
/// the first, and the columns for the others.
pub(crate) fn backward<N: Real>(
    grad: &mut [N],
    input: &[N],
    stats: &[f32],
    tokens: Tokens<'_>,
    gain_grads: &mut [f32],
) {
    let (width, pairs) = (tokens.width, tokens.stats());
    if threads::count() == 1 {
        let gain_grads = Some(gain_grads);
        return Arch::new().dispatch(Backward { grad, input, stats, tokens, gain_grads });
    }
    let head = tokens.gains[0].len();
    for (group, gain_grad) in tokens.groups().zip(gain_grads.chunks_exact_mut(head)) {
        add_gain_grad(gain_grad, grad, input, stats, tokens, &group);
    }
    let rows = ((By(grad, width), By(stats, pairs)), By(input, width));
    cut(rows, 2 * width, |_, ((grad, stats), input)| {
        Arch::new().dispatch(Backward { grad, input, stats, tokens, gain_grads: None });
    });
}

struct Backward<'a, N> {
    grad: &'a mut [N],
    input: &'a [N],
    stats: &'a [f32],
    tokens: Tokens<'a>,
    /// If they are added here, token by token: a head is then still in the first-level cache.
    gain_grads: Option<&'a mut [f32]>,
}

impl<N: Real> WithSimd for Backward<'_, N> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        match self.tokens.gains[0].len() {
            64 => self.of(simd, 64),
            128 => self.of(simd, 128),
            head => self.of(simd, head),
        }
    }
}

impl<N: Real> Backward<'_, N> {
    #[inline(always)]
    fn of<S: Simd>(mut self, simd: S, head: usize) {
        let (tokens, width) = (self.tokens, self.tokens.width);
        let rows = self.grad.chunks_exact_mut(width).zip(self.input.chunks_exact(width));
        for ((grad, row), stats) in rows.zip(self.stats.chunks_exact(tokens.stats())) {
            for (index, group) in tokens.groups().enumerate() {
                let (grad, row) = (&mut grad[group.numbers.clone()], &row[group.numbers]);
                let gain = &group.gain[..head];
                let heads = grad.chunks_exact_mut(head).zip(row.chunks_exact(head));
                for ((grad, row), &[_, scale]) in heads.zip(stats[group.stats].as_chunks().0) {
                    let [_, along] = totals(simd, grad, row, gain, 0.0, AHEAD * head);
                    if let Some(gain_grads) = &mut self.gain_grads {
                        let columns = grad.iter().zip(row).zip(&mut gain_grads[index * head..][..head]);
                        for ((grad, x), gain_grad) in columns {
                            *gain_grad = grad.wide().mul_add(x.wide() * scale, *gain_grad);
                        }
                    }
                    let slope = along / head as f32 * scale * scale;
                    for ((grad, x), &gain) in grad.iter_mut().zip(row).zip(gain) {
                        let normal_grad = grad.wide() * gain;
                        *grad = N::narrow(scale * x.wide().mul_add(-slope, normal_grad));
                    }
                }
            }
        }
    }
}

/// Adds the gradient of a group's gain, token by token and head by head.
fn add_gain_grad<N: Real>(
    gain_grad: &mut [f32],
    grad: &[N],
    input: &[N],
    stats: &[f32],
    tokens: Tokens<'_>,
    group: &Group<'_>,
) {
    let (width, pairs) = (tokens.width, tokens.stats());
    let weight = LINE * stats.len() / pairs * group.stats.len() / 2;
    cut(By(gain_grad, LINE), weight, |first, gain_grad| {
        let rows = grad.chunks_exact(width).zip(input.chunks_exact(width));
        for ((grad, row), stats) in rows.zip(stats.chunks_exact(pairs)) {
            let (grad, row) = (&grad[group.numbers.clone()], &row[group.numbers.clone()]);
            let stats = &stats[group.stats.clone()];
            norm::add_column_grads(gain_grad, None, first * LINE, grad, row, stats, group.gain.len());
        }
    });
}

#[cfg(test)]
mod tests {
    use half::bf16;

    use super::*;
    use crate::rng;

    const TOKENS: usize = 5;

    /// Heads of any width get the bits of norms of rows.
    #[test]
    fn heads_are_rows() {
        for head in [64, 128, 40] {
            check::<f32>(head);
            check::<bf16>(head);
        }
    }

    fn draw<N: Real>(name: &str, count: usize) -> Vec<N> {
        let mut numbers = vec![0.0; count];
        rng::fill_normal(rng::key(1, name), 1.0, &mut numbers);
        numbers.into_iter().map(N::narrow).collect()
    }

    /// Three heads of queries, one of keys and one of values.
    fn check<N: Real + PartialEq + std::fmt::Debug>(head: usize) {
        let (input, dy) = (draw::<N>("x", TOKENS * 5 * head), draw::<N>("dy", TOKENS * 5 * head));
        let gains: [Vec<f32>; 2] = [draw("q", head), draw("k", head)];
        let tokens =
            Tokens { heads: [3, 1], groups: &[0, 1], gains: [&gains[0], &gains[1]], width: 5 * head };
        let (mut out, mut stats) = (input.clone(), vec![0.0; TOKENS * 8]);
        forward(&mut out, &mut stats, &input, tokens, 1e-5);
        let (mut grad, mut both) = (dy.clone(), vec![0.5; 2 * head]);
        backward(&mut grad, &input, &stats, tokens, &mut both);
        let sums = [&both[..head], &both[head..]];

        for (heads, gain, sum) in [(0..3, &gains[0], sums[0]), (3..4, &gains[1], sums[1])] {
            let of = |numbers: &[N]| -> Vec<N> {
                let rows = numbers.chunks_exact(5 * head);
                rows.flat_map(|row| row[heads.start * head..heads.end * head].to_vec()).collect()
            };
            let rows = of(&input);
            let (mut normal, mut moments) = (rows.clone(), vec![0.0; 2 * rows.len() / head]);
            norm::forward(&mut normal, &mut moments, &rows, gain, None, 1e-5);
            assert_eq!(of(&out), normal, "{head} wide");
            let (mut row_grads, mut gain_grad) = (of(&dy), vec![0.5; head]);
            norm::backward(&mut row_grads, &rows, &moments, gain, &mut gain_grad, None);
            assert_eq!(of(&grad), row_grads, "{head} wide, backward");
            assert_eq!(sum, gain_grad, "{head} wide, gain");
        }
        let values = |numbers: &[N]| -> Vec<N> {
            let rows = numbers.chunks_exact(5 * head);
            rows.flat_map(|row| row[4 * head..].to_vec()).collect()
        };
        assert_eq!(values(&out), values(&input));
        assert_eq!(values(&grad), values(&dy));
    }
}
