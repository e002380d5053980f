//! AdamW.

use multiversion::multiversion;

use super::base::{Decay, Optimizer, Update, fill_state};
use crate::cpu::parts::{By, cut};
use crate::cpu::prefetch::LINE;
use crate::cuda::Together;
use crate::error::Result;
use crate::parameter::Parameter;
use crate::parameter::description::StateTensor;

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
        Self { betas: (0.9, 0.999), eps: 1e-8, weight_decay: 0.01, decay: Decay::default() }
    }
}

impl Optimizer for AdamW {
    fn states(&self, _name: &str, dims: &[usize]) -> Vec<StateTensor> {
        ["exp_avg", "exp_avg_sq"].map(|name| StateTensor::for_each(name, dims)).into()
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
            let Scalars { scale, mean_step, square_keep, square_step, root_scale, epsilon, .. } = scalars;
            let args = [scale, mean_step, square_keep, square_step, root_scale, epsilon].map(Into::into);
            let own = [scalars.shrink, scalars.step_size];
            return weights.update("adamw", &args, 2, own, together);
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

/// The scalars of one AdamW update.
#[derive(Clone, Copy)]
struct Scalars {
    /// The factor that the gradient is multiplied by first.
    scale: f32,
    /// `1 - learning_rate * weight_decay`.
    shrink: f32,
    /// `1 - beta1`.
    mean_step: f32,
    /// `beta2`.
    square_keep: f32,
    /// `1 - beta2`.
    square_step: f32,
    /// `1 / sqrt(1 - beta2^step)`.
    root_scale: f32,
    /// Added to the square root.
    epsilon: f32,
    /// `learning_rate / (1 - beta1^step)`.
    step_size: f32,
}

/// One update of the weights, the mean of the gradient and the mean of its square.
fn update(value: &mut [f32], grad: &[f32], mean: &mut [f32], square: &mut [f32], by: Scalars) {
    let rows = ((By(value, LINE), By(grad, LINE)), (By(mean, LINE), By(square, LINE)));
    cut(rows, 2 * LINE, |_, ((value, grad), (mean, square))| {
        update_part(value, grad, mean, square, by);
    });
}

#[multiversion(targets = "simd")]
fn update_part(value: &mut [f32], grad: &[f32], mean: &mut [f32], square: &mut [f32], by: Scalars) {
    for (((value, &grad), mean), square) in value.iter_mut().zip(grad).zip(mean).zip(square) {
        let grad = grad * by.scale;
        *mean = (grad - *mean).mul_add(by.mean_step, *mean);
        *square = (grad * by.square_step).mul_add(grad, *square * by.square_keep);
        let root = square.sqrt().mul_add(by.root_scale, by.epsilon);
        *value = (-by.step_size).mul_add(*mean / root, *value * by.shrink);
    }
}
