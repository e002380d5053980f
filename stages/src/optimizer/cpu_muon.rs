//! The inner loops of Muon.

use crate::cpu::matmul::{Right, Start, matmul};
use crate::cpu::matrix::Matrix;
use crate::cpu::parts::{By, cut};
use crate::cpu::prefetch::LINE;
use crate::cpu::sum_of_squares::sum_of_squares;
use crate::pool::Buffer;

/// The polynomial `a x + b x^3 + c x^5` of each round: its slope at 0 is as steep as it can be. Jordan et
/// al., "Muon: an optimizer for hidden layers in neural networks" (2024).
const POLYNOMIAL: [f32; 3] = [3.4445, -4.7750, 2.0315];
const ROUNDS: usize = 5;
/// The least that the norm of the matrix counts as.
const LEAST: f64 = 1e-7;

/// The scalars of one Muon update.
#[derive(Clone, Copy)]
pub(crate) struct Scalars {
    /// The factor that the gradient is multiplied by first.
    pub(crate) scale: f32,
    /// The share of the mean gradient that stays.
    pub(crate) momentum: f32,
    /// `1 - learning_rate * weight_decay`.
    pub(crate) shrink: f32,
    /// How far the weights go in the orthogonal direction.
    pub(crate) step_size: f32,
}

/// One update of a matrix of `columns` columns and of its mean gradient.
pub(crate) fn update(value: &mut [f32], grad: &[f32], mean: &mut [f32], columns: usize, by: Scalars) {
    let mut direction = Buffer::pooled(grad.len());
    let rows = ((By(&mut *direction, LINE), By(grad, LINE)), By(mean, LINE));
    cut(rows, LINE, |_, ((direction, grad), mean)| {
        for ((direction, grad), mean) in direction.iter_mut().zip(grad).zip(mean) {
            let grad = grad * by.scale;
            *mean = (grad - *mean).mul_add(1.0 - by.momentum, *mean);
            *direction = (*mean - grad).mul_add(by.momentum, grad);
        }
    });
    orthogonalise(&mut direction, columns);
    combine(value, &direction, by.shrink, -by.step_size);
}

/// Replaces a matrix of `columns` columns by the one with the same singular vectors, and singular values
/// between about 0.7 and 1.2. It is divided by its norm first. Very small singular values stay smaller.
fn orthogonalise(numbers: &mut [f32], columns: usize) {
    let [a, b, c] = POLYNOMIAL;
    let rows = numbers.len() / columns;
    let short = rows.min(columns);
    let norm = sum_of_squares(numbers).sqrt().max(LEAST);
    cut(By(&mut *numbers, LINE), LINE, |_, numbers| {
        numbers
            .iter_mut()
            .for_each(|number| *number = (f64::from(*number) / norm) as f32);
    });
    let [mut gram, mut mix] = [(); 2].map(|()| Buffer::pooled(short * short));
    let mut next = Buffer::pooled(numbers.len());
    for _ in 0..ROUNDS {
        let x = Matrix::new(&*numbers, columns);
        match rows <= columns {
            true => matmul(&mut gram, Start::Zero, x, Right::Matrix(x.t())),
            false => matmul(&mut gram, Start::Zero, x.t(), Right::Matrix(x)),
        }
        let square = Matrix::new(&gram[..], short);
        matmul(&mut mix, Start::Zero, square, Right::Matrix(square));
        combine(&mut mix, &gram, c, b);
        let mix = Matrix::new(&mix[..], short);
        match rows <= columns {
            true => matmul(&mut next, Start::Zero, mix, Right::Matrix(x)),
            false => matmul(&mut next, Start::Zero, x, Right::Matrix(mix)),
        }
        combine(numbers, &next, a, 1.0);
    }
}

/// `numbers = factor numbers + more_factor more`.
fn combine(numbers: &mut [f32], more: &[f32], factor: f32, more_factor: f32) {
    cut((By(numbers, LINE), By(more, LINE)), LINE, |_, (numbers, more)| {
        for (number, more) in numbers.iter_mut().zip(more) {
            *number = more_factor.mul_add(*more, factor * *number);
        }
    });
}
