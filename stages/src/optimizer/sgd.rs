//! Stochastic gradient descent with momentum.

use super::{Decay, Optimizer, StateTensor, Update, fill_state};
use crate::batched_launch::Together;
use crate::error::Result;
use crate::optimizer::cpu_sgd as sgd;
use crate::parameter::Parameter;

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
        let scalars = sgd::Scalars {
            scale: by.scale as f32,
            weight_decay: self.decay.of(self.weight_decay, parameter) as f32,
            momentum: self.momentum as f32,
            learning_rate: (by.learning_rate * parameter.training().rate) as f32,
        };
        let with_momentum = self.momentum != 0.0;
        if let Some(weights) = parameter.on_gpu_mut() {
            return weights.sgd(with_momentum, scalars, &mut together.0);
        }
        fill_state(parameter, self);
        let (value, grad, state) = parameter.owned_parts();
        match state.first_mut() {
            Some(momentum) => sgd::update(value, grad, momentum, scalars),
            None => sgd::update_plain(value, grad, scalars),
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
