//! The inner loops of gradient descent.

use multiversion::multiversion;

/// The scalars of one update.
#[derive(Clone, Copy)]
pub(crate) struct Scalars {
    /// What the gradient is multiplied by first.
    pub(crate) scale: f32,
    /// The share of the weight that is added to the gradient.
    pub(crate) weight_decay: f32,
    /// How much of the momentum stays.
    pub(crate) momentum: f32,
    /// The learning rate.
    pub(crate) learning_rate: f32,
}

/// One update of the weights and the momentum.
#[multiversion(targets = "simd")]
pub(crate) fn update(value: &mut [f32], grad: &[f32], momentum: &mut [f32], by: Scalars) {
    for ((value, &grad), momentum) in value.iter_mut().zip(grad).zip(momentum) {
        let grad = value.mul_add(by.weight_decay, grad * by.scale);
        *momentum = momentum.mul_add(by.momentum, grad);
        *value = (-by.learning_rate).mul_add(*momentum, *value);
    }
}

/// One update of the weights without momentum.
#[multiversion(targets = "simd")]
pub(crate) fn update_plain(value: &mut [f32], grad: &[f32], by: Scalars) {
    for (value, &grad) in value.iter_mut().zip(grad) {
        let grad = value.mul_add(by.weight_decay, grad * by.scale);
        *value = (-by.learning_rate).mul_add(grad, *value);
    }
}
