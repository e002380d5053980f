//! The inner loops of stochastic gradient descent.

use multiversion::multiversion;

use crate::cpu::parts::{By, cut};
use crate::cpu::prefetch::LINE;

/// The scalars of one update.
#[derive(Clone, Copy)]
pub(crate) struct Scalars {
    /// The factor that the gradient is multiplied by first.
    pub(crate) scale: f32,
    /// The share of the weight that is added to the gradient.
    pub(crate) weight_decay: f32,
    /// The share of the momentum that stays.
    pub(crate) momentum: f32,
    /// The learning rate.
    pub(crate) learning_rate: f32,
}

/// One update of the weights and the momentum.
pub(crate) fn update(value: &mut [f32], grad: &[f32], momentum: &mut [f32], by: Scalars) {
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
pub(crate) fn update_plain(value: &mut [f32], grad: &[f32], by: Scalars) {
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
