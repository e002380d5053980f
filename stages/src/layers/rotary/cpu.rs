//! Rotary position embedding. Su et al., "RoFormer" (2021).

use multiversion::multiversion;

use crate::cpu::lanes::LANES;
use crate::cpu::parts::{By, cut};
use crate::cpu::prefetch::prefetch_ahead;
use crate::cpu::real::Real;
use crate::stage::borders::Spans;

/// What is turned, and in which direction.
#[derive(Clone, Copy)]
pub(crate) struct Turn<'a> {
    /// The documents of the rows.
    pub(crate) spans: Spans<'a>,
    /// The length of a row.
    pub(crate) row: usize,
    /// How many numbers of a row are turned, from the first on: whole heads.
    pub(crate) turned: usize,
    /// The width of a head.
    pub(crate) width: usize,
    /// Whether the numbers of a pair are neighbours. Otherwise they lie half a head apart.
    pub(crate) in_pairs: bool,
    /// Whether it turns by the opposite angles.
    pub(crate) is_back: bool,
}

/// Turns the heads of every row, in place. The table has for each position the cosines of all pairs of a
/// head, then their sines.
pub(crate) fn turn<N: Real>(numbers: &mut [N], table: &[f32], turn: Turn<'_>) {
    let part = if turn.in_pairs { turn_part::<N, true> } else { turn_part::<N, false> };
    cut(By(numbers, turn.row), turn.turned, |first, rows| {
        part(rows, first, table, turn);
    });
}

#[multiversion(targets = "simd")]
fn turn_part<N: Real, const PAIRS: bool>(rows: &mut [N], first: usize, table: &[f32], turn: Turn<'_>) {
    let sign = if turn.is_back { -1.0 } else { 1.0 };
    for (index, row) in (first..).zip(rows.chunks_exact_mut(turn.row)) {
        let angles = &table[turn.spans.position(index) * turn.width..][..turn.width];
        let angles = angles.split_at(turn.width / 2);
        for head in row[..turn.turned].chunks_exact_mut(turn.width) {
            prefetch_ahead(head, turn.row);
            if PAIRS {
                turn_pairs(head, angles, sign);
            } else {
                turn_halves(head, angles, sign);
            }
        }
    }
}

/// Turns a head whose pairs lie half a head apart, a register of each half at a time.
#[inline(always)]
fn turn_halves<N: Real>(head: &mut [N], (cos, sin): (&[f32], &[f32]), sign: f32) {
    let (xs, ys) = head.split_at_mut(cos.len());
    let ((xs, x_rest), (ys, y_rest)) = (xs.as_chunks_mut::<LANES>(), ys.as_chunks_mut::<LANES>());
    let ((cos, cos_rest), (sin, sin_rest)) = (cos.as_chunks::<LANES>(), sin.as_chunks::<LANES>());
    for ((xs, ys), (cos, sin)) in xs.iter_mut().zip(ys).zip(cos.iter().zip(sin)) {
        // One loop for both, or writing in place, would not become vector instructions.
        let mut new = [[N::default(); LANES]; 2];
        for lane in 0..LANES {
            new[0][lane] = turned([xs[lane], ys[lane]], cos[lane], sign * sin[lane])[0];
        }
        for lane in 0..LANES {
            new[1][lane] = turned([xs[lane], ys[lane]], cos[lane], sign * sin[lane])[1];
        }
        [*xs, *ys] = new;
    }
    for ((x, y), (&cos, &sin)) in x_rest.iter_mut().zip(y_rest).zip(cos_rest.iter().zip(sin_rest)) {
        [*x, *y] = turned([*x, *y], cos, sign * sin);
    }
}

/// Turns a head whose pairs are neighbours, two registers at a time.
#[inline(always)]
fn turn_pairs<N: Real>(head: &mut [N], (cos, sin): (&[f32], &[f32]), sign: f32) {
    let (pairs, rest) = head.as_chunks_mut::<2>().0.as_chunks_mut::<LANES>();
    let ((cos, cos_rest), (sin, sin_rest)) = (cos.as_chunks::<LANES>(), sin.as_chunks::<LANES>());
    for (pairs, (cos, sin)) in pairs.iter_mut().zip(cos.iter().zip(sin)) {
        for lane in 0..LANES {
            pairs[lane] = turned(pairs[lane], cos[lane], sign * sin[lane]);
        }
    }
    for (pair, (&cos, &sin)) in rest.iter_mut().zip(cos_rest.iter().zip(sin_rest)) {
        *pair = turned(*pair, cos, sign * sin);
    }
}

/// A pair, turned.
#[inline(always)]
fn turned<N: Real>([x, y]: [N; 2], cos: f32, sin: f32) -> [N; 2] {
    let (x, y) = (x.wide(), y.wide());
    [x.mul_add(cos, -(y * sin)), y.mul_add(cos, x * sin)].map(N::narrow)
}
