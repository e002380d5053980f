//! Muon.

use super::adamw::AdamW;
use super::base::{Optimizer, Update, fill_state};
use crate::cpu::lanes::sum_of_squares;
use crate::cpu::matmul::{Right, Start, matmul};
use crate::cpu::matrix::Matrix;
use crate::cpu::parts::{By, cut};
use crate::cpu::prefetch::LINE;
use crate::cuda::Together;
use crate::error::Result;
use crate::parameter::Parameter;
use crate::parameter::state_format::StateTensor;
use crate::pool::Buffer;

/// Muon: each step moves a matrix by the orthogonal matrix that is nearest to its momentum. It keeps half the
/// state of AdamW for matrices. Jordan et al., "Muon: an optimizer for hidden layers in neural networks"
/// (2024); scaled so that AdamW's learning rate and weight decay fit: Liu et al., "Muon is scalable for LLM
/// training" (2025).
///
/// With gradient `g` and learning rate `a`, for a matrix `[rows, columns]`: `m += (1 - momentum)(g - m)`,
/// `u = g + momentum (m - g)`, `p *= 1 - a * weight_decay`, `p -= 0.2 a sqrt(max(rows, columns))
/// orthogonal(u)`. `orthogonal` is five rounds of a polynomial, in `f32`. Each of [`Parameter::tensors`] is a
/// matrix: queries, keys and values are three, also where they are one parameter.
///
/// Parameters that are no matrices, and the matrices of [`Muon::by_adamw`], are updated by AdamW. An update
/// depends on the whole matrix. So this optimizer cannot be sharded, and runs on CPUs only.
#[derive(Clone, Debug, PartialEq)]
pub struct Muon {
    /// The share of the mean gradient `m` that each step keeps.
    pub momentum: f64,
    /// The optimizer of other parameters. Its weight decay is for matrices too.
    pub adamw: AdamW,
    /// The names of matrices that are updated by AdamW. The paper advises it for what reads tokens and what
    /// predicts them.
    pub by_adamw: Vec<String>,
}

impl Default for Muon {
    /// The momentum of PyTorch, 0.95; AdamW with its default settings for embeddings and heads of the ready
    /// models.
    fn default() -> Self {
        Self {
            momentum: 0.95,
            adamw: AdamW::default(),
            by_adamw: ["wte.weight", "wpe.weight", "lm_head.weight"].map(str::to_owned).into(),
        }
    }
}

impl Muon {
    /// The columns of a parameter that is updated as a matrix.
    fn columns(&self, name: &str, dims: &[usize]) -> Option<usize> {
        match dims {
            [rows, columns] if rows * columns > 0 && !self.by_adamw.iter().any(|other| other == name) => {
                Some(*columns)
            }
            _ => None,
        }
    }
}

impl Optimizer for Muon {
    fn states(&self, name: &str, dims: &[usize]) -> Vec<StateTensor> {
        match self.columns(name, dims) {
            Some(_) => vec![StateTensor::for_each("momentum_buffer", dims)],
            None => self.adamw.states(name, dims),
        }
    }

    fn update(&self, parameter: &mut Parameter, by: Update, together: &mut Together) -> Result<()> {
        let Some(columns) = self.columns(parameter.name(), parameter.dims()) else {
            return self.adamw.update(parameter, by, together);
        };
        fill_state(parameter, self);
        let learning_rate = by.learning_rate * parameter.training().rate;
        let weight_decay = self.adamw.decay.of(self.adamw.weight_decay, parameter);
        let tensors = parameter.tensors();
        let (value, grad, [mean]) = parameter.owned_parts() else {
            unreachable!("fill_state: one tensor, and checkpoints are checked against `states`")
        };
        let mut start = 0;
        for count in tensors {
            let numbers = start..start + count;
            let longest = columns.max(count / columns) as f64;
            let scalars = Scalars {
                scale: by.scale as f32,
                momentum: self.momentum as f32,
                shrink: (1.0 - learning_rate * weight_decay) as f32,
                step_size: (0.2 * learning_rate * longest.sqrt()) as f32,
            };
            let (value, mean) = (&mut value[numbers.clone()], &mut mean[numbers.clone()]);
            update(value, &grad[numbers], mean, columns, scalars);
            start += count;
        }
        Ok(())
    }
}

/// The polynomial `a x + b x^3 + c x^5` of each round: its slope at 0 is as steep as it can be. Jordan et
/// al., "Muon: an optimizer for hidden layers in neural networks" (2024).
const POLYNOMIAL: [f32; 3] = [3.4445, -4.7750, 2.0315];
const ROUNDS: usize = 5;
/// The least that the norm of the matrix counts as.
const LEAST: f64 = 1e-7;

/// The scalars of one Muon update.
#[derive(Clone, Copy)]
struct Scalars {
    /// The factor that the gradient is multiplied by first.
    scale: f32,
    /// The share of the mean gradient that stays.
    momentum: f32,
    /// `1 - learning_rate * weight_decay`.
    shrink: f32,
    /// How far the weights go in the orthogonal direction.
    step_size: f32,
}

/// One update of a matrix of `columns` columns and of its mean gradient.
fn update(value: &mut [f32], grad: &[f32], mean: &mut [f32], columns: usize, by: Scalars) {
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
        numbers.iter_mut().for_each(|number| *number = (f64::from(*number) / norm) as f32);
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
