//! Stochastic gradient descent with momentum.

use multiversion::multiversion;

use super::base::{Decay, Optimizer, Update, fill_state};
use crate::cpu::parts::{By, cut};
use crate::cpu::prefetch::LINE;
use crate::cuda::Together;
use crate::error::Result;
use crate::parameter::Parameter;
use crate::parameter::state_format::{StateFormat, StateTensor};
use crate::parameter::weights::UpdateKernel;

/// Gradient descent with momentum, by PyTorch's formula, without dampening and without Nesterov momentum.
///
/// With gradient `g` and learning rate `a`: `g += weight_decay * p`, `m = momentum * m + g`, `p -= a * m`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sgd {
    /// The share of the running sum of gradients that each step keeps. With 0 there is no state.
    pub momentum: f64,
    /// The share of a weight that is added to its gradient.
    pub weight_decay: f64,
    /// Which parameters decay.
    pub decay: Decay,
}

impl Optimizer for Sgd {
    fn states(&self, _name: &str, dims: &[usize]) -> Vec<StateTensor> {
        let momentum = || StateTensor::for_each("momentum_buffer", dims);
        (self.momentum != 0.0).then(momentum).into_iter().collect()
    }

    fn update(&self, parameter: &mut Parameter, by: Update, together: &mut Together) -> Result<()> {
        let scalars = Scalars {
            scale: by.scale as f32,
            weight_decay: self.decay.of(self.weight_decay, parameter) as f32,
            momentum: self.momentum as f32,
            learning_rate: (by.learning_rate * parameter.training().rate) as f32,
        };
        if let Some(weights) = parameter.on_gpu_mut() {
            let args = &[scalars.scale, scalars.momentum].map(Into::into);
            let own = [scalars.weight_decay, scalars.learning_rate];
            let states = &[StateFormat::F32][..usize::from(self.momentum != 0.0)];
            return weights.update(UpdateKernel { name: "sgd", args, states, own }, together);
        }
        fill_state(parameter, self);
        let (value, grad, state) = parameter.owned_parts();
        match state.first_mut() {
            Some(momentum) => update(value, grad, momentum, scalars),
            None => update_plain(value, grad, scalars),
        }
        Ok(())
    }

    fn runs_on_gpus(&self) -> bool {
        true
    }

    fn updates_parts(&self) -> bool {
        true
    }
}

/// The scalars of one update.
#[derive(Clone, Copy)]
struct Scalars {
    /// The factor that the gradient is multiplied by first.
    scale: f32,
    /// The share of the weight that is added to the gradient.
    weight_decay: f32,
    /// The share of the momentum that stays.
    momentum: f32,
    /// The learning rate.
    learning_rate: f32,
}

/// One update of the weights and the momentum.
fn update(value: &mut [f32], grad: &[f32], momentum: &mut [f32], by: Scalars) {
    let rows = ((By(value, LINE), By(grad, LINE)), By(momentum, LINE));
    cut(rows, LINE, |_, ((value, grad), momentum)| {
        update_part(value, grad, momentum, by);
    });
}

#[multiversion(targets = "simd")]
fn update_part(value: &mut [f32], grad: &[f32], momentum: &mut [f32], by: Scalars) {
    for ((value, &grad), momentum) in value.iter_mut().zip(grad).zip(momentum) {
        let grad = value.mul_add(by.weight_decay, grad * by.scale);
        *momentum = momentum.mul_add(by.momentum, grad);
        *value = (-by.learning_rate).mul_add(*momentum, *value);
    }
}

/// One update of the weights without momentum.
fn update_plain(value: &mut [f32], grad: &[f32], by: Scalars) {
    cut((By(value, LINE), By(grad, LINE)), LINE, |_, (value, grad)| {
        update_plain_part(value, grad, by);
    });
}

#[multiversion(targets = "simd")]
fn update_plain_part(value: &mut [f32], grad: &[f32], by: Scalars) {
    for (value, &grad) in value.iter_mut().zip(grad) {
        let grad = value.mul_add(by.weight_decay, grad * by.scale);
        *value = (-by.learning_rate).mul_add(grad, *value);
    }
}
