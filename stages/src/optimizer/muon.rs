//! Muon.

use super::{AdamW, Optimizer, StateTensor, Update, fill_state};
use crate::batched_launch::Together;
use crate::error::Result;
use crate::optimizer::cpu_muon::{Scalars, update};
use crate::parameter::Parameter;

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
            by_adamw: ["wte.weight", "wpe.weight", "lm_head.weight"]
                .map(str::to_owned)
                .into(),
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
