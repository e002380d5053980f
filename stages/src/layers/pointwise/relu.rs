//! The rectified linear unit.

use super::Pointwise;
use super::cpu::{Loops, OfOutput};
use crate::cpu::real::Real;
use crate::cuda::launch::kernel;
use crate::device::DType;

/// `max(x, 0)`, on any shape. It keeps its output, and shares that memory with the next layer.
#[derive(Debug)]
pub struct Relu {
    name: String,
}

impl Relu {
    /// A layer of this name.
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned() }
    }
}

impl Pointwise for Relu {
    fn name(&self) -> &str {
        &self.name
    }

    fn on_cpu<N: Real>(&self) -> Loops<N> {
        Loops::of_output::<Self>()
    }

    fn on_gpu(&self, dtype: DType) -> Option<[&'static str; 2]> {
        Some([kernel!(dtype, "relu_forward"), kernel!(dtype, "relu_backward")])
    }
}

impl OfOutput for Relu {
    const WORK: usize = 1;

    #[inline(always)]
    fn value(x: f32) -> f32 {
        // NaN stays.
        if x < 0.0 { 0.0 } else { x }
    }

    #[inline(always)]
    fn gradient(grad: f32, y: f32) -> f32 {
        if y > 0.0 { grad } else { 0.0 }
    }
}
