//! RMSNorm of each head of queries and keys, which lie side by side in the row of a token.

use std::ops::Range;

use super::norm;
use super::parts::{By, cut};
use super::prefetch::LINE;
use super::real::Real;
use crate::threads;

/// The rows of tokens. Each is `width` numbers wide and begins with the groups of heads that are normalised,
/// first those of queries, then those of keys. What follows passes.
#[derive(Clone, Copy)]
pub(crate) struct Tokens<'a> {
    /// The number of heads in each group.
    pub(crate) heads: [usize; 2],
    /// The gain of each group, as long as a head is wide.
    pub(crate) gains: [&'a [f32]; 2],
    /// The numbers in the row of a token.
    pub(crate) width: usize,
}

/// The heads of a group in the row of a token.
struct Group<'a> {
    numbers: Range<usize>,
    stats: Range<usize>,
    gain: &'a [f32],
}

impl<'a> Tokens<'a> {
    fn groups(self) -> [Group<'a>; 2] {
        let ([queries, keys], head) = (self.heads, self.gains[0].len());
        let group = |heads: Range<usize>, gain| Group {
            numbers: heads.start * head..heads.end * head,
            stats: 2 * heads.start..2 * heads.end,
            gain,
        };
        let [query_gain, key_gain] = self.gains;
        [
            group(0..queries, query_gain),
            group(queries..queries + keys, key_gain),
        ]
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
        let rows = out.chunks_exact_mut(width).zip(input.chunks_exact(width));
        for ((out, row), stats) in rows.zip(stats.chunks_exact_mut(pairs)) {
            let mut end = 0;
            for Group {
                numbers,
                stats: of_group,
                gain,
            } in tokens.groups()
            {
                end = numbers.end;
                let (out, row) = (&mut out[numbers.clone()], &row[numbers]);
                norm::forward_part(out, &mut stats[of_group], row, gain, None, epsilon);
            }
            out[end..].copy_from_slice(&row[end..]);
        }
    });
}

/// Turns the output gradient into the input gradient, in place, and adds the gradients of the gains to
/// `gain_grads`. The threads share the tokens for the first, and the columns for the others.
pub(crate) fn backward<N: Real>(
    grad: &mut [N],
    input: &[N],
    stats: &[f32],
    tokens: Tokens<'_>,
    gain_grads: [&mut [f32]; 2],
) {
    let (width, pairs) = (tokens.width, tokens.stats());
    // One thread takes token by token, so that a token is still in the first-level cache.
    let count = if threads::count() == 1 {
        1
    } else {
        stats.len() / pairs
    };
    let blocks = grad
        .chunks_mut(count * width)
        .zip(input.chunks(count * width))
        .zip(stats.chunks(count * pairs));
    let mut gain_grads = gain_grads;
    for ((grad, input), stats) in blocks {
        for (group, gain_grad) in tokens.groups().into_iter().zip(&mut gain_grads) {
            add_gain_grad(gain_grad, grad, input, stats, tokens, &group);
        }
        let rows = ((By(grad, width), By(stats, pairs)), By(input, width));
        cut(rows, 2 * width, |_, ((grad, stats), input)| {
            let rows = grad.chunks_exact_mut(width).zip(input.chunks_exact(width));
            for ((grad, row), stats) in rows.zip(stats.chunks_exact(pairs)) {
                for Group {
                    numbers,
                    stats: of_group,
                    gain,
                } in tokens.groups()
                {
                    let (grad, row) = (&mut grad[numbers.clone()], &row[numbers]);
                    norm::input_grad(grad, row, &stats[of_group], gain, false);
                }
            }
        });
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
