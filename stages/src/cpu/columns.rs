//! Some columns of rows.

use std::ops::Range;

use multiversion::multiversion;

use super::parts::{By, cut};
use super::real::Real;

/// `out = scale rows[columns]`. `out` is `[n, columns]`, `rows` is `[n, width]`.
pub(crate) fn take<N: Real>(out: &mut [N], rows: &[N], width: usize, columns: Range<usize>, scale: f32) {
    let count = columns.len();
    cut((By(out, count), By(rows, width)), count, |_, (out, rows)| {
        for (out, row) in out.chunks_exact_mut(count).zip(rows.chunks_exact(width)) {
            take_row(out, &row[columns.clone()], scale);
        }
    });
}

/// `rows[columns] = from`. `rows` is `[n, width]`, `from` is `[n, columns]`.
pub(crate) fn put<N: Real>(rows: &mut [N], width: usize, columns: Range<usize>, from: &[N]) {
    let count = columns.len();
    cut((By(rows, width), By(from, count)), count, |_, (rows, from)| {
        for (row, from) in rows.chunks_exact_mut(width).zip(from.chunks_exact(count)) {
            row[columns.clone()].copy_from_slice(from);
        }
    });
}

/// `rows[columns] += scale more`. `rows` is `[n, width]`, `more` is `[n, columns]`.
pub(crate) fn add<N: Real>(rows: &mut [N], width: usize, columns: Range<usize>, more: &[N], scale: f32) {
    let count = columns.len();
    cut((By(rows, width), By(more, count)), count, |_, (rows, more)| {
        for (row, more) in rows.chunks_exact_mut(width).zip(more.chunks_exact(count)) {
            add_row(&mut row[columns.clone()], more, scale);
        }
    });
}

#[multiversion(targets = "simd")]
fn take_row<N: Real>(out: &mut [N], row: &[N], scale: f32) {
    for (out, number) in out.iter_mut().zip(row) {
        *out = N::narrow(scale * number.wide());
    }
}

#[multiversion(targets = "simd")]
fn add_row<N: Real>(row: &mut [N], more: &[N], scale: f32) {
    for (number, more) in row.iter_mut().zip(more) {
        *number = N::narrow(number.wide() + scale * more.wide());
    }
}
