//! The inner loop of AdamW.

use multiversion::multiversion;

use crate::cpu::parts::{By, cut};
use crate::cpu::prefetch::LINE;

/// The scalars of one AdamW update.
#[derive(Clone, Copy)]
pub(crate) struct Scalars {
    /// The factor that the gradient is multiplied by first.
    pub(crate) scale: f32,
    /// `1 - learning_rate * weight_decay`.
    pub(crate) shrink: f32,
    /// `1 - beta1`.
    pub(crate) mean_step: f32,
    /// `beta2`.
    pub(crate) square_keep: f32,
    /// `1 - beta2`.
    pub(crate) square_step: f32,
    /// `1 / sqrt(1 - beta2^step)`.
    pub(crate) root_scale: f32,
    /// Added to the square root.
    pub(crate) epsilon: f32,
    /// `learning_rate / (1 - beta1^step)`.
    pub(crate) step_size: f32,
}

/// One update of the weights, the mean of the gradient and the mean of its square.
pub(crate) fn update(value: &mut [f32], grad: &[f32], mean: &mut [f32], square: &mut [f32], by: Scalars) {
    let rows = (
        (By(value, LINE), By(grad, LINE)),
        (By(mean, LINE), By(square, LINE)),
    );
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
