//! The inner loops of Adafactor. Every sum has one order, whatever the number of threads.

use crate::cpu::parts::{By, cut};
use crate::cpu::prefetch::LINE;
use crate::cpu::sum_of_squares::sum_of_squares;
use crate::pool::Buffer;

/// The scalars of an update.
#[derive(Clone, Copy)]
pub(crate) struct Scalars {
    /// The factor that the gradient is multiplied by first.
    pub(crate) scale: f32,
    /// How far mean squares go towards the new squares.
    pub(crate) change: f32,
    /// `1 - learning_rate * weight_decay`.
    pub(crate) shrink: f32,
}

/// The mean squares of a parameter's gradient.
pub(crate) enum Squares<'a> {
    /// One for each number.
    Each(&'a mut [f32]),
    /// One for each row and each column of matrices, which stand one after the other.
    Factored {
        rows: &'a mut [f32],
        columns: &'a mut [f32],
        height: usize,
        width: usize,
    },
}

/// The least mean of the rows' mean squares. Its square is the least mean square of a number.
const LEAST: f32 = f32::EPSILON;

/// How many rows are added up before their sum is added to a column's sum.
const ROWS: usize = 64;

/// Renews the mean squares. Returns the sum of the squares of what the gradient divided by their roots is.
pub(crate) fn sum_of_update(grad: &[f32], squares: &mut Squares<'_>, by: Scalars) -> f64 {
    match squares {
        Squares::Each(variance) => {
            let mut sums: Buffer = Buffer::pooled(grad.len().div_ceil(LINE));
            let rows = ((By(&mut **variance, LINE), By(grad, LINE)), By(&mut *sums, 1));
            cut(rows, LINE, |_, ((variance, grad), sums)| {
                let chunks = variance.chunks_mut(LINE).zip(grad.chunks(LINE));
                for ((variance, grad), sum) in chunks.zip(sums) {
                    for (variance, &grad) in variance.iter_mut().zip(grad) {
                        let grad = grad * by.scale;
                        *variance = (grad * grad - *variance).mul_add(by.change, *variance);
                    }
                    let updates = grad.iter().zip(variance).map(|(grad, variance)| {
                        let update = grad * by.scale * factor(*variance);
                        update * update
                    });
                    *sum = updates.sum();
                }
            });
            sums.iter().map(|&sum| f64::from(sum)).sum()
        }
        Squares::Factored {
            rows,
            columns,
            height,
            width,
        } => {
            let (height, width) = (*height, *width);
            let matrices = grad.chunks_exact((height * width).max(1));
            let sides = rows
                .chunks_exact_mut(height.max(1))
                .zip(columns.chunks_exact_mut(width.max(1)));
            let (mut sum, mut sums): (f64, Buffer) = (0.0, Buffer::pooled(height));
            for (grad, (rows, columns)) in matrices.zip(sides) {
                renew_rows(rows, grad, width, by);
                renew_columns(columns, grad, height, by);
                let mean = mean(rows);
                let work = ((By(&*rows, 1), By(grad, width)), By(&mut *sums, 1));
                cut(work, 2 * width, |_, ((rows, grad), sums)| {
                    for ((row, grad), sum) in rows.iter().zip(grad.chunks_exact(width)).zip(sums) {
                        let updates = grad.iter().zip(&*columns).map(|(grad, column)| {
                            let update = grad * by.scale * factor(row * column / mean);
                            f64::from(update * update)
                        });
                        *sum = updates.sum::<f64>() as f32;
                    }
                });
                sum += sums.iter().map(|&sum| f64::from(sum)).sum::<f64>();
            }
            sum
        }
    }
}

/// Updates the weights by this share of the gradient divided by the roots of the mean squares.
pub(crate) fn update(value: &mut [f32], grad: &[f32], squares: &Squares<'_>, by: Scalars, step_size: f32) {
    let one = |value: &mut f32, grad: f32, square: f32| {
        let update = grad * by.scale * factor(square);
        *value = (-step_size).mul_add(update, *value * by.shrink);
    };
    match squares {
        Squares::Each(variance) => {
            let rows = ((By(value, LINE), By(grad, LINE)), By(&**variance, LINE));
            cut(rows, LINE, |_, ((value, grad), variance)| {
                for ((value, &grad), &variance) in value.iter_mut().zip(grad).zip(variance) {
                    one(value, grad, variance);
                }
            });
        }
        Squares::Factored {
            rows,
            columns,
            height,
            width,
        } => {
            let (height, width) = (*height, *width);
            let matrices = value
                .chunks_exact_mut((height * width).max(1))
                .zip(grad.chunks_exact((height * width).max(1)));
            let sides = rows
                .chunks_exact(height.max(1))
                .zip(columns.chunks_exact(width.max(1)));
            for ((value, grad), (rows, columns)) in matrices.zip(sides) {
                let mean = mean(rows);
                let work = ((By(value, width), By(grad, width)), By(rows, 1));
                cut(work, 2 * width, |_, ((value, grad), rows)| {
                    let lines = value.chunks_exact_mut(width).zip(grad.chunks_exact(width));
                    for ((value, grad), row) in lines.zip(rows) {
                        for ((value, &grad), column) in value.iter_mut().zip(grad).zip(columns) {
                            one(value, grad, row * column / mean);
                        }
                    }
                });
            }
        }
    }
}

/// What a gradient is multiplied by.
fn factor(square: f32) -> f32 {
    1.0 / square.max(LEAST * LEAST).sqrt()
}

fn mean(rows: &[f32]) -> f32 {
    let sum: f64 = rows.iter().map(|&row| f64::from(row)).sum();
    ((sum / rows.len() as f64) as f32).max(LEAST)
}

fn renew_rows(rows: &mut [f32], grad: &[f32], width: usize, by: Scalars) {
    cut((By(rows, 1), By(grad, width)), width, |_, (rows, grad)| {
        for (row, grad) in rows.iter_mut().zip(grad.chunks_exact(width)) {
            let scale = f64::from(by.scale);
            let new = (sum_of_squares(grad) * scale * scale / width as f64) as f32;
            *row = (new - *row).mul_add(by.change, *row);
        }
    });
}

fn renew_columns(columns: &mut [f32], grad: &[f32], height: usize, by: Scalars) {
    let width = columns.len();
    cut(By(columns, LINE), height * LINE, |first, columns| {
        for (index, columns) in columns.chunks_mut(LINE).enumerate() {
            let start = (first + index) * LINE;
            let mut totals = [0.0_f32; LINE];
            for rows in grad.chunks(ROWS * width) {
                let mut sums = [0.0_f32; LINE];
                for row in rows.chunks_exact(width) {
                    for (sum, grad) in sums.iter_mut().zip(&row[start..start + columns.len()]) {
                        let grad = grad * by.scale;
                        *sum = grad.mul_add(grad, *sum);
                    }
                }
                totals.iter_mut().zip(sums).for_each(|(total, sum)| *total += sum);
            }
            for (column, total) in columns.iter_mut().zip(totals) {
                *column = (total / height as f32 - *column).mul_add(by.change, *column);
            }
        }
    });
}
