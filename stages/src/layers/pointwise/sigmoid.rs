//! The logistic sigmoid, for gates.

use super::Pointwise;
use super::cpu::{Activation, Loops};
use crate::cpu::math::{bounded_exp, sigmoid};
use crate::cpu::real::Real;
use crate::cuda::launch::kernel;
use crate::device::DType;

/// `1 / (1 + exp(-x))`, on any shape: a number between 0 and 1, for a gate. It keeps its input.
#[derive(Debug)]
pub struct Sigmoid {
    name: String,
}

impl Sigmoid {
    /// A layer of this name.
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned() }
    }
}

impl Pointwise for Sigmoid {
    fn name(&self) -> &str {
        &self.name
    }

    fn on_cpu<N: Real>(&self) -> Loops<N> {
        Loops::of_input::<Self>()
    }

    fn on_gpu(&self, dtype: DType) -> Option<[&'static str; 2]> {
        Some([kernel!(dtype, "sigmoid_forward"), kernel!(dtype, "sigmoid_backward")])
    }
}

impl Activation for Sigmoid {
    #[inline(always)]
    fn first_half(x: f32) -> f32 {
        bounded_exp(-x)
    }

    #[inline(always)]
    fn second_half(_: f32, first: f32) -> [f32; 2] {
        let [value, rest] = sigmoid(first);
        [value, value * rest]
    }
}
