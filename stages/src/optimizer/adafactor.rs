//! Adafactor.

use smallvec::SmallVec;

use super::{Decay, Optimizer, StateTensor, Update, fill_state};
use crate::batched_launch::Together;
use crate::cpu::sum_of_squares::sum_of_squares;
use crate::error::Result;
use crate::optimizer::cpu_adafactor::{Scalars, Squares, sum_of_update, update};
use crate::parameter::Parameter;

/// Adafactor, which keeps a mean square for each row and each column of a matrix, instead of one for each
/// number: next to no memory. Shazeer and Stern, "Adafactor: adaptive learning rates with sublinear memory
/// cost" (2018), by PyTorch's formula, without a mean gradient.
///
/// With gradient `g`, learning rate `a`, step `t` and `k = t^decay_rate`: `r += k (mean over columns of g^2 -
/// r)`, `c += k (mean over rows of g^2 - c)`, `v = r c / mean(r)`, `u = g / sqrt(v)`, `p *= 1 - a *
/// weight_decay`, `p -= max(1e-3, rms(p)) min(a, 1 / sqrt(t)) / max(1, rms(u)) u`, with `rms(p)` from before
/// the decay. A parameter of one dimension keeps `v += k (g^2 - v)`. Of more than two dimensions, the last
/// two are a matrix. `mean(r)` is at least 2^-23, and `v` its square. Each of [`Parameter::tensors`] is
/// changed by itself: queries, keys and values are three, also where they are one parameter.
///
/// An update depends on the whole tensor. So this optimizer cannot be sharded, and runs on CPUs only.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adafactor {
    /// How fast mean squares change: the power of the step.
    pub decay_rate: f64,
    /// The share of a weight that each step removes, times the learning rate.
    pub weight_decay: f64,
    /// Which parameters decay.
    pub decay: Decay,
}

impl Default for Adafactor {
    /// The paper's and PyTorch's: a decay rate of -0.8, no weight decay.
    fn default() -> Self {
        Self {
            decay_rate: -0.8,
            weight_decay: 0.0,
            decay: Decay::default(),
        }
    }
}

/// The least that weights count as, when an update is scaled by them.
const LEAST_RMS: f64 = 1e-3;

impl Optimizer for Adafactor {
    fn states(&self, _name: &str, dims: &[usize]) -> Vec<StateTensor> {
        let [outer @ .., rows, columns] = dims else {
            return vec![StateTensor::for_each("variance", dims)];
        };
        let of = |name, dim: &usize| StateTensor {
            name,
            dims: outer.iter().chain([dim]).copied().collect(),
        };
        vec![of("row_var", rows), of("col_var", columns)]
    }

    fn update(&self, parameter: &mut Parameter, by: Update, _: &mut Together) -> Result<()> {
        fill_state(parameter, self);
        let step = by.step as f64;
        let learning_rate = by.learning_rate * parameter.training().rate;
        let weight_decay = self.decay.of(self.weight_decay, parameter);
        let scalars = Scalars {
            scale: by.scale as f32,
            change: step.powf(self.decay_rate) as f32,
            shrink: (1.0 - learning_rate * weight_decay) as f32,
        };
        let (tensors, dims) = (parameter.tensors(), parameter.dims().to_vec());
        let (mut value, mut grad, state) = parameter.owned_parts();
        let mut state: SmallVec<[&mut [f32]; 2]> = state.iter_mut().map(|numbers| &mut numbers[..]).collect();
        for count in tensors.into_iter().filter(|count| *count > 0) {
            let squares = of_tensor(&mut state, &dims, count);
            let value = value.split_off_mut(..count).expect(TENSORS);
            let grad = grad.split_off(..count).expect(TENSORS);
            let rate = learning_rate.min(1.0 / step.sqrt());
            change(value, grad, squares, scalars, rate);
        }
        Ok(())
    }
}

const TENSORS: &str = "`tensors`: they are all numbers of the parameter";

/// Takes the mean squares of the next tensor, which has `count` numbers.
fn of_tensor<'a>(state: &mut [&'a mut [f32]], dims: &[usize], count: usize) -> Squares<'a> {
    let mut take = |index: usize, count: usize| state[index].split_off_mut(..count).expect(TENSORS);
    let ([.., height, width], outer) = (dims, dims.len().saturating_sub(2)) else {
        return Squares::Each(take(0, count));
    };
    // Fused matrices have their own heights. Where a tensor is a list of matrices, all have one.
    let height = if outer == 0 { count / width } else { *height };
    Squares::Factored {
        rows: take(0, count / width),
        columns: take(1, count / height),
        height,
        width: *width,
    }
}

/// Changes one tensor.
fn change(value: &mut [f32], grad: &[f32], mut squares: Squares<'_>, by: Scalars, rate: f64) {
    let rms = |squares: f64| (squares / grad.len() as f64).sqrt();
    let size = rms(sum_of_squares(value)).max(LEAST_RMS);
    let longest = rms(sum_of_update(grad, &mut squares, by)).max(1.0);
    update(value, grad, &squares, by, (size * rate / longest) as f32);
}
