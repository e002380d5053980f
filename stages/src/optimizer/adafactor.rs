//! Adafactor.

use smallvec::SmallVec;

use super::base::{Decay, Optimizer, Update, fill_state};
use crate::cpu::lanes::sum_of_squares;
use crate::cpu::parts::{By, cut};
use crate::cpu::prefetch::LINE;
use crate::cuda::Together;
use crate::error::Result;
use crate::parameter::Parameter;
use crate::parameter::state_format::StateTensor;
use crate::pool::Buffer;

/// Adafactor, which keeps a mean square for each row and each column of a matrix, instead of one for each
/// number: next to no memory. Shazeer and Stern, "Adafactor: adaptive learning rates with sublinear memory
/// cost" (2018), by PyTorch's formula, without a mean gradient.
///
/// With gradient `g`, learning rate `a`, step `t` and `k = t^decay_rate`: `r += k (mean over columns of g^2 -
/// r)`, `c += k (mean over rows of g^2 - c)`, `v = r c / mean(r)`, `u = g / sqrt(v)`, `p *= 1 - a *
/// weight_decay`, `p -= max(1e-3, rms(p)) min(a, 1 / sqrt(t)) / max(1, rms(u)) u`, with `rms(p)` from before
/// the decay. A parameter of one dimension keeps `v += k (g^2 - v)`. Of more than two dimensions, the last
/// two are a matrix. `mean(r)` is at least 2^-23, and `v` its square. Each of [`Parameter::tensors`] is
/// changed by itself: queries, keys and values are three, also where they are one parameter.
///
/// An update depends on the whole tensor. So this optimizer cannot be sharded, and runs on CPUs only.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adafactor {
    /// How fast mean squares change: the power of the step.
    pub decay_rate: f64,
    /// The share of a weight that each step removes, times the learning rate.
    pub weight_decay: f64,
    /// Which parameters decay.
    pub decay: Decay,
}

impl Default for Adafactor {
    /// The paper's and PyTorch's: a decay rate of -0.8, no weight decay.
    fn default() -> Self {
        Self { decay_rate: -0.8, weight_decay: 0.0, decay: Decay::default() }
    }
}

/// The least that weights count as, when an update is scaled by them.
const LEAST_RMS: f64 = 1e-3;

impl Optimizer for Adafactor {
    fn states(&self, _name: &str, dims: &[usize]) -> Vec<StateTensor> {
        let [outer @ .., rows, columns] = dims else {
            return vec![StateTensor::for_each("variance", dims)];
        };
        let of = |name, dim: &usize| {
            StateTensor::for_each(name, &outer.iter().chain([dim]).copied().collect::<Vec<_>>())
        };
        vec![of("row_var", rows), of("col_var", columns)]
    }

    fn update(&self, parameter: &mut Parameter, by: Update, _: &mut Together) -> Result<()> {
        fill_state(parameter, self);
        let step = by.step as f64;
        let learning_rate = by.learning_rate * parameter.training().rate;
        let weight_decay = self.decay.of(self.weight_decay, parameter);
        let scalars = Scalars {
            scale: by.scale as f32,
            change: step.powf(self.decay_rate) as f32,
            shrink: (1.0 - learning_rate * weight_decay) as f32,
        };
        let (tensors, dims) = (parameter.tensors(), parameter.dims().to_vec());
        let (mut value, mut grad, state) = parameter.owned_parts();
        let mut state: SmallVec<[&mut [f32]; 2]> = state.iter_mut().map(|numbers| &mut numbers[..]).collect();
        for count in tensors.into_iter().filter(|count| *count > 0) {
            let squares = of_tensor(&mut state, &dims, count);
            let value = value.split_off_mut(..count).expect(TENSORS);
            let grad = grad.split_off(..count).expect(TENSORS);
            let rate = learning_rate.min(1.0 / step.sqrt());
            change(value, grad, squares, scalars, rate);
        }
        Ok(())
    }
}

const TENSORS: &str = "`tensors`: they are all numbers of the parameter";

/// Takes the mean squares of the next tensor, which has `count` numbers.
fn of_tensor<'a>(state: &mut [&'a mut [f32]], dims: &[usize], count: usize) -> Squares<'a> {
    let mut take = |index: usize, count: usize| state[index].split_off_mut(..count).expect(TENSORS);
    let ([.., height, width], outer) = (dims, dims.len().saturating_sub(2)) else {
        return Squares::Each(take(0, count));
    };
    // Fused matrices have their own heights. Where a tensor is a list of matrices, all have one.
    let height = if outer == 0 { count / width } else { *height };
    Squares::Factored {
        rows: take(0, count / width),
        columns: take(1, count / height),
        height,
        width: *width,
    }
}

/// Changes one tensor.
fn change(value: &mut [f32], grad: &[f32], mut squares: Squares<'_>, by: Scalars, rate: f64) {
    let rms = |squares: f64| (squares / grad.len() as f64).sqrt();
    let size = rms(sum_of_squares(value)).max(LEAST_RMS);
    let longest = rms(sum_of_update(grad, &mut squares, by)).max(1.0);
    update(value, grad, &squares, by, (size * rate / longest) as f32);
}

/// The scalars of an update.
#[derive(Clone, Copy)]
struct Scalars {
    /// The factor that the gradient is multiplied by first.
    scale: f32,
    /// How far mean squares go towards the new squares.
    change: f32,
    /// `1 - learning_rate * weight_decay`.
    shrink: f32,
}

/// The mean squares of a parameter's gradient.
enum Squares<'a> {
    /// One for each number.
    Each(&'a mut [f32]),
    /// One for each row and each column of matrices, which stand one after the other.
    Factored { rows: &'a mut [f32], columns: &'a mut [f32], height: usize, width: usize },
}

/// The least mean of the rows' mean squares. Its square is the least mean square of a number.
const LEAST: f32 = f32::EPSILON;

/// How many rows are added up before their sum is added to a column's sum.
const ROWS: usize = 64;

/// Renews the mean squares. Returns the sum of the squares of what the gradient divided by their roots is.
fn sum_of_update(grad: &[f32], squares: &mut Squares<'_>, by: Scalars) -> f64 {
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
        Squares::Factored { rows, columns, height, width } => {
            let (height, width) = (*height, *width);
            let matrices = grad.chunks_exact((height * width).max(1));
            let sides = rows.chunks_exact_mut(height.max(1)).zip(columns.chunks_exact_mut(width.max(1)));
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
fn update(value: &mut [f32], grad: &[f32], squares: &Squares<'_>, by: Scalars, step_size: f32) {
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
        Squares::Factored { rows, columns, height, width } => {
            let (height, width) = (*height, *width);
            let matrices = value
                .chunks_exact_mut((height * width).max(1))
                .zip(grad.chunks_exact((height * width).max(1)));
            let sides = rows.chunks_exact(height.max(1)).zip(columns.chunks_exact(width.max(1)));
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
