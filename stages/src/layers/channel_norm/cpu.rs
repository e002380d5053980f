//! Sums over the rows of each channel, and loops that treat each channel in its own way. Batch and group norm
//! are made of them, and the global average.
//!
//! Sums are in `f32` over a few rows, and in `f64` over all of these. So they lose nothing over many rows,
//! and their order depends on the number of rows alone.

use multiversion::multiversion;

use crate::cpu::parts::{By, cut};
use crate::cpu::prefetch::LINE;

/// How many rows are added up in `f32`.
const FEW: usize = 32;

/// Writes the mean and the variance of each channel. The variance is the mean of squares, over all rows.
pub(crate) fn moments(mean: &mut [f32], variance: &mut [f32], rows: &[f32]) {
    let width = mean.len();
    let count = rows.len() / width;
    let columns = (By(mean, LINE), By(variance, LINE));
    cut(columns, 2 * LINE * count, |first, (mean, variance)| {
        let lines = mean.chunks_mut(LINE).zip(variance.chunks_mut(LINE));
        for ((mean, variance), first) in lines.zip((first * LINE..).step_by(LINE)) {
            // Numbers near the mean lose nothing when they are squared.
            let shift = line(rows, first, mean.len());
            let sums = moment_sums(rows, shift, width, first, mean.len());
            for (lane, (mean, variance)) in mean.iter_mut().zip(variance).enumerate() {
                let [sum, squares] = sums.map(|sums| sums[lane] / count as f64);
                *mean = (f64::from(shift[lane]) + sum) as f32;
                *variance = (squares - sum * sum).max(0.0) as f32;
            }
        }
    });
}

/// Writes, for each channel, the sums over all rows of the gradient, and of it times `x - mean`.
pub(crate) fn slopes(totals: &mut [f32], alongs: &mut [f32], grads: &[f32], rows: &[f32], mean: &[f32]) {
    let width = mean.len();
    let count = rows.len() / width;
    let columns = (By(totals, LINE), By(alongs, LINE));
    cut(columns, 2 * LINE * count, |first, (totals, alongs)| {
        let lines = totals.chunks_mut(LINE).zip(alongs.chunks_mut(LINE));
        for ((totals, alongs), first) in lines.zip((first * LINE..).step_by(LINE)) {
            let mean = line(mean, first, totals.len());
            let sums = slope_sums(grads, rows, mean, width, first, totals.len());
            for (lane, (total, along)) in totals.iter_mut().zip(alongs).enumerate() {
                [*total, *along] = sums.map(|sums| sums[lane] as f32);
            }
        }
    });
}

/// Writes, for each channel, the mean over all rows.
pub(crate) fn average(out: &mut [f32], rows: &[f32]) {
    let width = out.len();
    let count = (rows.len() / width) as f64;
    for (out, first) in out.chunks_mut(LINE).zip((0..).step_by(LINE)) {
        let [sums, _] = moment_sums(rows, [0.0; LINE], width, first, out.len());
        for (out, sum) in out.iter_mut().zip(sums) {
            *out = (sum / count) as f32;
        }
    }
}

/// The sums over all rows of `x - shift` and of its square, for a line of channels.
#[multiversion(targets = "simd")]
fn moment_sums(
    rows: &[f32],
    shift: [f32; LINE],
    width: usize,
    first: usize,
    columns: usize,
) -> [[f64; LINE]; 2] {
    let mut sums = [[0.0; LINE]; 2];
    for rows in rows.chunks(FEW * width) {
        let mut few = [[0.0_f32; LINE]; 2];
        for row in rows.chunks_exact(width) {
            let row = line(row, first, columns);
            for lane in 0..LINE {
                let x = row[lane] - shift[lane];
                few[0][lane] += x;
                few[1][lane] = x.mul_add(x, few[1][lane]);
            }
        }
        add(&mut sums, few);
    }
    sums
}

#[multiversion(targets = "simd")]
fn slope_sums(
    grads: &[f32],
    rows: &[f32],
    mean: [f32; LINE],
    width: usize,
    first: usize,
    columns: usize,
) -> [[f64; LINE]; 2] {
    let mut sums = [[0.0; LINE]; 2];
    for (grads, rows) in grads.chunks(FEW * width).zip(rows.chunks(FEW * width)) {
        let mut few = [[0.0_f32; LINE]; 2];
        for (grad, row) in grads.chunks_exact(width).zip(rows.chunks_exact(width)) {
            let (grad, row) = (line(grad, first, columns), line(row, first, columns));
            for lane in 0..LINE {
                few[0][lane] += grad[lane];
                few[1][lane] = grad[lane].mul_add(row[lane] - mean[lane], few[1][lane]);
            }
        }
        add(&mut sums, few);
    }
    sums
}

#[inline(always)]
fn add(sums: &mut [[f64; LINE]; 2], few: [[f32; LINE]; 2]) {
    for (sums, few) in sums.iter_mut().zip(few) {
        for (sum, few) in sums.iter_mut().zip(few) {
            *sum += f64::from(few);
        }
    }
}

/// A line of a row from column `first` on: `columns` numbers, then zeros.
#[inline(always)]
fn line(row: &[f32], first: usize, columns: usize) -> [f32; LINE] {
    match row[first..].first_chunk() {
        Some(line) => *line,
        None => {
            let mut line = [0.0; LINE];
            line[..columns].copy_from_slice(&row[first..][..columns]);
            line
        }
    }
}

/// `out = (x - mean) scale + shift`, with numbers of each channel.
pub(crate) fn apply(out: &mut [f32], rows: &[f32], [mean, scale, shift]: [&[f32]; 3]) {
    let width = mean.len();
    cut((By(out, width), By(rows, width)), width, |_, (out, rows)| {
        apply_part(out, rows, [mean, scale, shift]);
    });
}

#[multiversion(targets = "simd")]
fn apply_part(out: &mut [f32], rows: &[f32], [mean, scale, shift]: [&[f32]; 3]) {
    let width = mean.len();
    for (out, row) in out.chunks_exact_mut(width).zip(rows.chunks_exact(width)) {
        let channels = mean.iter().zip(scale).zip(shift);
        for ((out, x), ((mean, scale), shift)) in out.iter_mut().zip(row).zip(channels) {
            *out = (x - mean).mul_add(*scale, *shift);
        }
    }
}

/// `grad = scale grad + slope (x - mean) + shift`, with numbers of each channel.
pub(crate) fn input_grad(grads: &mut [f32], rows: &[f32], by: [&[f32]; 4]) {
    let width = by[0].len();
    cut((By(grads, width), By(rows, width)), 2 * width, |_, (grads, rows)| {
        input_grad_part(grads, rows, by);
    });
}

#[multiversion(targets = "simd")]
fn input_grad_part(grads: &mut [f32], rows: &[f32], [mean, scale, slope, shift]: [&[f32]; 4]) {
    let width = mean.len();
    for (grads, row) in grads.chunks_exact_mut(width).zip(rows.chunks_exact(width)) {
        let channels = mean.iter().zip(scale).zip(slope.iter().zip(shift));
        for ((grad, x), ((mean, scale), (slope, shift))) in grads.iter_mut().zip(row).zip(channels) {
            *grad = grad.mul_add(*scale, (x - mean).mul_add(*slope, *shift));
        }
    }
}

/// `out = factor grad` in each row.
#[multiversion(targets = "simd")]
pub(crate) fn spread(out: &mut [f32], grad: &[f32], factor: f32) {
    for row in out.chunks_exact_mut(grad.len()) {
        for (out, grad) in row.iter_mut().zip(grad) {
            *out = factor * grad;
        }
    }
}
