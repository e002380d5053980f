//! Lion.

use multiversion::multiversion;

use super::base::{Decay, Optimizer, Update, fill_state};
use crate::cpu::parts::{By, cut};
use crate::cpu::prefetch::LINE;
use crate::cuda::Together;
use crate::error::Result;
use crate::parameter::Parameter;
use crate::parameter::state_format::{StateFormat, StateTensor};
use crate::parameter::weights::UpdateKernel;

/// Lion: each step moves every weight by the learning rate, in the direction that the gradient and its mean
/// agree on. It keeps half the state of AdamW. Chen et al., "Symbolic discovery of optimization algorithms"
/// (2023), algorithm 2. The paper advises a learning rate 3 to 10 times smaller than AdamW's, and a weight
/// decay larger by the same factor.
///
/// With gradient `g` and learning rate `a`: `c = b1 m + (1 - b1) g`, `p = (1 - a * weight_decay) p - a
/// sign(c)`, `m = b2 m + (1 - b2) g`, where `sign(0) = 0`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lion {
    /// The share of the mean gradient `m` in a step's direction, and the share of `m` that each step keeps.
    pub betas: (f64, f64),
    /// The share of a weight that each step removes, times the learning rate.
    pub weight_decay: f64,
    /// Which parameters decay.
    pub decay: Decay,
}

impl Default for Lion {
    /// The paper's: betas 0.9 and 0.99, no weight decay.
    fn default() -> Self {
        Self { betas: (0.9, 0.99), weight_decay: 0.0, decay: Decay::default() }
    }
}

impl Optimizer for Lion {
    fn states(&self, _name: &str, dims: &[usize]) -> Vec<StateTensor> {
        vec![StateTensor::for_each("exp_avg", dims)]
    }

    fn update(&self, parameter: &mut Parameter, by: Update, together: &mut Together) -> Result<()> {
        let learning_rate = by.learning_rate * parameter.training().rate;
        let weight_decay = self.decay.of(self.weight_decay, parameter);
        let scalars = Scalars {
            scale: by.scale as f32,
            shrink: (1.0 - learning_rate * weight_decay) as f32,
            direction_step: (1.0 - self.betas.0) as f32,
            mean_step: (1.0 - self.betas.1) as f32,
            learning_rate: learning_rate as f32,
        };
        if let Some(weights) = parameter.on_gpu_mut() {
            let args = &[scalars.scale, scalars.direction_step, scalars.mean_step].map(Into::into);
            let own = [scalars.shrink, scalars.learning_rate];
            let states = &[StateFormat::F32];
            return weights.update(UpdateKernel { name: "lion", args, states, own }, together);
        }
        fill_state(parameter, self);
        let (value, grad, [mean]) = parameter.owned_parts() else {
            unreachable!("fill_state: one tensor, and checkpoints are checked against `states`")
        };
        update(value, grad, mean, scalars);
        Ok(())
    }

    fn runs_on_gpus(&self) -> bool {
        true
    }

    fn updates_parts(&self) -> bool {
        true
    }
}

/// The scalars of one Lion update.
#[derive(Clone, Copy)]
struct Scalars {
    /// The factor that the gradient is multiplied by first.
    scale: f32,
    /// `1 - learning_rate * weight_decay`.
    shrink: f32,
    /// `1 - beta1`.
    direction_step: f32,
    /// `1 - beta2`.
    mean_step: f32,
    /// How far a weight moves.
    learning_rate: f32,
}

/// One update of the weights and the mean of the gradient.
fn update(value: &mut [f32], grad: &[f32], mean: &mut [f32], by: Scalars) {
    let rows = ((By(value, LINE), By(grad, LINE)), By(mean, LINE));
    cut(rows, LINE, |_, ((value, grad), mean)| {
        update_part(value, grad, mean, by);
    });
}

#[multiversion(targets = "simd")]
fn update_part(value: &mut [f32], grad: &[f32], mean: &mut [f32], by: Scalars) {
    for ((value, &grad), mean) in value.iter_mut().zip(grad).zip(mean) {
        let more = grad * by.scale - *mean;
        let direction = more.mul_add(by.direction_step, *mean);
        *mean = more.mul_add(by.mean_step, *mean);
        // NaN stays NaN.
        let sign = match direction == 0.0 || direction.is_nan() {
            true => direction,
            false => 1.0_f32.copysign(direction),
        };
        *value = (-by.learning_rate).mul_add(sign, *value * by.shrink);
    }
}
