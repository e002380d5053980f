//! Norms, row by row. With a shift: layer normalisation, Ba, Kiros and Hinton, "Layer normalization" (2016).
//! Without one: RMSNorm, Zhang and Sennrich, "Root mean square layer normalization" (2019), which is the same
//! with a mean of 0.

use multiversion::multiversion;

use crate::cpu::parts::{By, cut};
use crate::cpu::prefetch::LINE;
use crate::cpu::real::Real;
use crate::cpu::row_sums;
use crate::threads;

/// How many rows one thread takes at once. They stay in the first-level cache until they are read again.
const FEW: usize = 8;

/// Normalises every row to mean 0 and standard deviation 1, then scales and shifts it. Without a shift,
/// divides it by its root mean square, then scales it. Writes each row's mean (0 without a shift) and the
/// factor of the first step to `stats`.
pub(crate) fn forward<N: Real>(
    out: &mut [N],
    stats: &mut [f32],
    input: &[N],
    gain: &[f32],
    shift: Option<&[f32]>,
    epsilon: f32,
) {
    let width = gain.len();
    let rows = ((By(out, width), By(stats, 2)), By(input, width));
    cut(rows, 2 * width, |_, ((out, stats), input)| {
        forward_part(out, stats, input, gain, shift, epsilon);
    });
}

/// Like [`forward`], on this thread.
fn forward_part<N: Real>(
    out: &mut [N],
    stats: &mut [f32],
    input: &[N],
    gain: &[f32],
    shift: Option<&[f32]>,
    epsilon: f32,
) {
    let width = gain.len();
    let blocks = input.chunks(FEW * width).zip(out.chunks_mut(FEW * width)).zip(stats.chunks_mut(FEW * 2));
    for ((input, out), stats) in blocks {
        row_sums::moments(stats.as_chunks_mut().0, input, width, epsilon, shift.is_some());
        forward_again_part(out, stats, input, gain, shift);
    }
}

/// Like [`forward`], with the `stats` that it wrote.
pub(crate) fn forward_again<N: Real>(
    out: &mut [N],
    stats: &[f32],
    input: &[N],
    gain: &[f32],
    shift: Option<&[f32]>,
) {
    let width = gain.len();
    let rows = ((By(out, width), By(stats, 2)), By(input, width));
    cut(rows, width, |_, ((out, stats), input)| {
        forward_again_part(out, stats, input, gain, shift);
    });
}

#[multiversion(targets = "simd")]
fn forward_again_part<N: Real>(
    out: &mut [N],
    stats: &[f32],
    input: &[N],
    gain: &[f32],
    shift: Option<&[f32]>,
) {
    let width = gain.len();
    let rows = input.chunks_exact(width).zip(out.chunks_exact_mut(width)).zip(stats.as_chunks::<2>().0);
    for ((row, out), &stats) in rows {
        match shift {
            Some(shift) => normalise(out, row, stats, gain, shift),
            None => scale_row(out, row, stats[1], gain),
        }
    }
}

/// A row times a factor and the gain.
#[inline(always)]
pub(crate) fn scale_row<N: Real>(out: &mut [N], row: &[N], scale: f32, gain: &[f32]) {
    for ((out, x), &gain) in out.iter_mut().zip(row).zip(gain) {
        *out = N::narrow(x.wide() * scale * gain);
    }
}

#[inline(always)]
fn normalise<N: Real>(out: &mut [N], row: &[N], [mean, scale]: [f32; 2], gain: &[f32], shift: &[f32]) {
    for (((out, x), &gain), &shift) in out.iter_mut().zip(row).zip(gain).zip(shift) {
        *out = N::narrow(((x.wide() - mean) * scale).mul_add(gain, shift));
    }
}

/// Turns the output gradient into the input gradient, in place, and adds the gradients of gain and shift, if
/// there is one, to `gain_grad` and `shift_grad`. The threads share the rows for the first, and the columns
/// for the others.
pub(crate) fn backward<N: Real>(
    grad: &mut [N],
    input: &[N],
    stats: &[f32],
    gain: &[f32],
    gain_grad: &mut [f32],
    mut shift_grad: Option<&mut [f32]>,
) {
    let (width, rows) = (gain.len(), stats.len() / 2);
    let rows = if threads::count() == 1 { FEW } else { rows.max(1) };
    let blocks = grad.chunks_mut(rows * width).zip(input.chunks(rows * width)).zip(stats.chunks(rows * 2));
    for ((grad, input), stats) in blocks {
        let shift_grad = shift_grad.as_deref_mut();
        let is_centred = shift_grad.is_some();
        let columns = (By(&mut *gain_grad, LINE), shift_grad.map(|grad| By(grad, LINE)));
        cut(columns, LINE * rows, |first, (gain_grad, shift_grad)| {
            add_column_grads(gain_grad, shift_grad, first * LINE, grad, input, stats, width);
        });
        let rows = ((By(grad, width), By(stats, 2)), By(input, width));
        cut(rows, 2 * width, |_, ((grad, stats), input)| {
            input_grad(grad, input, stats, gain, is_centred);
        });
    }
}

/// Adds the gradients of gain and shift, from column `first` on.
#[multiversion(targets = "simd")]
pub(crate) fn add_column_grads<N: Real>(
    gain_grad: &mut [f32],
    mut shift_grad: Option<&mut [f32]>,
    first: usize,
    grad: &[N],
    input: &[N],
    stats: &[f32],
    width: usize,
) {
    let rows = grad.chunks_exact(width).zip(input.chunks_exact(width)).zip(stats.as_chunks::<2>().0);
    for ((grad, row), &[mean, scale]) in rows {
        let (grad, row) = (&grad[first..], &row[first..]);
        let columns = grad.iter().zip(row).zip(&mut *gain_grad);
        match shift_grad.as_deref_mut() {
            Some(shift_grad) => {
                for (((grad, x), gain_grad), shift_grad) in columns.zip(shift_grad) {
                    let grad = grad.wide();
                    *gain_grad = grad.mul_add((x.wide() - mean) * scale, *gain_grad);
                    *shift_grad += grad;
                }
            }
            None => {
                for ((grad, x), gain_grad) in columns {
                    *gain_grad = grad.wide().mul_add(x.wide() * scale, *gain_grad);
                }
            }
        }
    }
}

/// Turns the output gradient into the input gradient, on this thread.
fn input_grad<N: Real>(grad: &mut [N], input: &[N], stats: &[f32], gain: &[f32], is_centred: bool) {
    let width = gain.len();
    let blocks =
        grad.chunks_mut(FEW * width).zip(input.chunks(FEW * width)).zip(stats.as_chunks().0.chunks(FEW));
    for ((grad, input), stats) in blocks {
        let mut room = [[0.0; 2]; FEW];
        let means = &mut room[..stats.len()];
        row_sums::slopes(means, grad, input, stats, gain, is_centred);
        input_grad_part(grad, input, stats, means, gain);
    }
}

#[multiversion(targets = "simd")]
fn input_grad_part<N: Real>(
    grad: &mut [N],
    input: &[N],
    stats: &[[f32; 2]],
    means: &[[f32; 2]],
    gain: &[f32],
) {
    let width = gain.len();
    let rows = grad.chunks_exact_mut(width).zip(input.chunks_exact(width));
    for ((grad, row), (&[mean, scale], &[total, along])) in rows.zip(stats.iter().zip(means)) {
        let slope = along * scale * scale;
        for ((grad, x), &gain) in grad.iter_mut().zip(row).zip(gain) {
            let normal_grad = grad.wide().mul_add(gain, -total);
            *grad = N::narrow(scale * (x.wide() - mean).mul_add(-slope, normal_grad));
        }
    }
}
