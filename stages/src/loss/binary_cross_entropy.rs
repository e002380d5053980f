//! Cross-entropy of yes and no.

use super::base::{Loss, check_numbers, of_numbers, refused};
use super::{Metric, Score};
use crate::cpu::math::{exp, sigmoid};
use crate::error::{Error, Result};
use crate::shape::Shape;
use crate::tensor::Tensor;

/// The negative log-likelihood of yes or no, in nats, summed over all numbers: `-y ln(p) - (1 - y) ln(1 - p)`
/// with `p = sigmoid(x)`. The output `x` are logits, and the target `y` is 1 for yes, 0 for no, or a
/// probability. The weight is how many numbers there are. PyTorch calls it `BCEWithLogitsLoss`. The sigmoid
/// is part of the loss, so there is no such layer before it, and large logits lose no digits.
///
/// Its metric is the `accuracy`: the share of logits on the side of their targets, where a logit above 0
/// stands for a target above a half. It computes on the CPU, in `f32`.
#[derive(Clone, Copy, Debug, Default)]
pub struct BinaryCrossEntropy;

impl Loss<Tensor> for BinaryCrossEntropy {
    fn check(&self, output: &Shape, target: &Shape) -> Result<()> {
        check_numbers(output, target)
    }

    fn forward(&mut self, mut output: Tensor, target: Tensor) -> Result<(Score, Tensor)> {
        self.check(output.shape(), target.shape())?;
        if let Some(wrong) = target.f32().iter().find(|target| !(0.0..=1.0).contains(*target)) {
            let text = format!("a target is {wrong}, and must be from 0 to 1: 0 for no, 1 for yes");
            return Err(refused(Error::new(text)));
        }
        let sides = output.f32().iter().zip(target.f32());
        let right = sides.filter(|(x, y)| (**x > 0.0) == (**y > 0.5)).count();
        let sum = of_numbers(&mut output, &target, |x, y| {
            let [likely, _] = sigmoid(exp(-x));
            // `ln(1 + exp(-|x|))`, so that no exponential is large.
            let rest = f64::from(exp(-x.abs())).ln_1p();
            (f64::from(x.max(0.0) - x * y) + rest, likely - y)
        });
        let weight = target.shape().count() as f64;
        let accuracy = Metric::ACCURACY.of(right as f64, weight);
        Ok((Score::new(sum, weight).with([accuracy]), output))
    }
}
