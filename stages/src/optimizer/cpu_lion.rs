//! The inner loop of Lion.

use multiversion::multiversion;

use crate::cpu::parts::{By, cut};
use crate::cpu::prefetch::LINE;

/// The scalars of one Lion update.
#[derive(Clone, Copy)]
pub(crate) struct Scalars {
    /// The factor that the gradient is multiplied by first.
    pub(crate) scale: f32,
    /// `1 - learning_rate * weight_decay`.
    pub(crate) shrink: f32,
    /// `1 - beta1`.
    pub(crate) direction_step: f32,
    /// `1 - beta2`.
    pub(crate) mean_step: f32,
    /// How far a weight moves.
    pub(crate) learning_rate: f32,
}

/// One update of the weights and the mean of the gradient.
pub(crate) fn update(value: &mut [f32], grad: &[f32], mean: &mut [f32], by: Scalars) {
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
