//! The hyperbolic tangent.

use super::Pointwise;
use super::cpu::{Loops, OfOutput};
use crate::cpu::math::tanh;
use crate::cpu::parts::EXP;
use crate::cpu::real::Real;

/// `tanh(x)`, on any shape: a number between -1 and 1. It keeps its output, and shares that memory with the
/// next layer. It runs on the CPU, in `f32`.
///
/// ```
/// use pipewright_stages::layers::Tanh;
/// use pipewright_stages::{Layer, Shape};
///
/// let shape = Shape::f32(&[4, 8]);
/// assert_eq!(Tanh::new("tanh").output_shape(&shape)?, shape);
/// # Ok::<(), pipewright_stages::Error>(())
/// ```
#[derive(Debug)]
pub struct Tanh {
    name: String,
}

impl Tanh {
    /// A layer of this name.
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned() }
    }
}

impl Pointwise for Tanh {
    fn name(&self) -> &str {
        &self.name
    }

    fn on_cpu<N: Real>(&self) -> Loops<N> {
        Loops::of_output::<Self>()
    }
}

impl OfOutput for Tanh {
    const WORK: usize = EXP;

    #[inline(always)]
    fn value(x: f32) -> f32 {
        tanh(x)
    }

    #[inline(always)]
    fn gradient(grad: f32, y: f32) -> f32 {
        grad * ((1.0 - y) * (1.0 + y))
    }
}
