//! AdamW.

use super::{Decay, Optimizer, StateTensor, Update, fill_state};
use crate::batched_launch::Together;
use crate::error::Result;
use crate::optimizer::cpu_adamw::{Scalars, update};
use crate::parameter::Parameter;

/// Adam with decoupled weight decay, by PyTorch's formula. Loshchilov and Hutter, "Decoupled weight decay
/// regularization" (ICLR 2019).
///
/// With gradient `g`, learning rate `a` and step `t`: `p *= 1 - a * weight_decay`, `m += (1 - b1)(g - m)`, `v
/// = b2 v + (1 - b2) g^2`, `p -= a / (1 - b1^t) * m / (sqrt(v / (1 - b2^t)) + eps)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamW {
    /// The share of the mean gradient `m` and of the mean square `v` that each step keeps.
    pub betas: (f64, f64),
    /// Added to the square root of the mean square.
    pub eps: f64,
    /// The share of a weight that each step removes, times the learning rate.
    pub weight_decay: f64,
    /// Which parameters decay.
    pub decay: Decay,
}

impl Default for AdamW {
    /// PyTorch's defaults: betas 0.9 and 0.999, eps 1e-8, weight decay 0.01.
    fn default() -> Self {
        Self {
            betas: (0.9, 0.999),
            eps: 1e-8,
            weight_decay: 0.01,
            decay: Decay::default(),
        }
    }
}

impl Optimizer for AdamW {
    fn states(&self, _name: &str, dims: &[usize]) -> Vec<StateTensor> {
        ["exp_avg", "exp_avg_sq"]
            .map(|name| StateTensor::for_each(name, dims))
            .into()
    }

    fn update(&self, parameter: &mut Parameter, by: Update, together: &mut Together) -> Result<()> {
        let (mean_keep, square_keep) = self.betas;
        let step = by.step as f64;
        let learning_rate = by.learning_rate * parameter.training().rate;
        let weight_decay = self.decay.of(self.weight_decay, parameter);
        let scalars = Scalars {
            scale: by.scale as f32,
            shrink: (1.0 - learning_rate * weight_decay) as f32,
            mean_step: (1.0 - mean_keep) as f32,
            square_keep: square_keep as f32,
            square_step: (1.0 - square_keep) as f32,
            root_scale: (1.0 / (1.0 - square_keep.powf(step)).sqrt()) as f32,
            epsilon: self.eps as f32,
            step_size: (learning_rate / (1.0 - mean_keep.powf(step))) as f32,
        };
        if let Some(weights) = parameter.on_gpu_mut() {
            return weights.adamw(scalars, &mut together.0);
        }
        fill_state(parameter, self);
        let (value, grad, [mean, square]) = parameter.owned_parts() else {
            unreachable!("fill_state: two tensors, and checkpoints are checked against `states`")
        };
        update(value, grad, mean, square, scalars);
        Ok(())
    }

    fn runs_on_gpus(&self) -> bool {
        true
    }

    fn updates_parts(&self) -> bool {
        true
    }
}
