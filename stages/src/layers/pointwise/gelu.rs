//! The Gaussian error linear unit.

use super::Pointwise;
use super::cpu::{Activation, Loops, backward_and_forward};
use crate::cpu::math::{bounded_exp, erfc, exp, sigmoid};
use crate::cpu::real::{Real, in_format};
use crate::cuda::launch::kernel;
use crate::device::DType;
use crate::error::Result;
use crate::layers::linear::column_sums::ColumnSums;
use crate::layers::{Cheap, Linear};
use crate::stage::kept::Kept;
use crate::tensor::Tensor;

/// The formula of a GELU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GeluForm {
    /// `x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))`, as in GPT-2.
    Tanh,
    /// `x/2 (1 + erf(x / sqrt(2)))`.
    Exact,
}

/// The Gaussian error linear unit, on any shape. Hendrycks and Gimpel, "Gaussian error linear units" (2016).
/// It keeps its input.
#[derive(Debug)]
pub struct Gelu {
    name: String,
    form: GeluForm,
    /// Where the sums for the bias of the layer before go.
    sums: Option<ColumnSums>,
}

impl Gelu {
    /// A layer of this name and form.
    pub fn new(name: &str, form: GeluForm) -> Self {
        Self { name: name.to_owned(), form, sums: None }
    }

    /// The same layer right after a linear one, whose sums for its bias it makes in backward: see
    /// [`ColumnSums`]. Only the form by tanh does.
    #[must_use]
    pub(crate) fn after(self, linear: &mut Linear) -> Self {
        Self { sums: Some(linear.sums()), ..self }
    }
}

impl Pointwise for Gelu {
    fn name(&self) -> &str {
        &self.name
    }

    fn on_cpu<N: Real>(&self) -> Loops<N> {
        match self.form {
            GeluForm::Tanh => Loops::of_input::<GeluTanh>(),
            GeluForm::Exact => Loops::of_input::<GeluExact>(),
        }
    }

    fn on_gpu(&self, dtype: DType) -> Option<[&'static str; 2]> {
        Some(match self.form {
            GeluForm::Tanh => [kernel!(dtype, "gelu_tanh_forward"), kernel!(dtype, "gelu_tanh_backward")],
            GeluForm::Exact => [kernel!(dtype, "gelu_exact_forward"), kernel!(dtype, "gelu_exact_backward")],
        })
    }

    fn sums(&self, dtype: DType) -> Option<(&ColumnSums, &'static str)> {
        match self.form {
            GeluForm::Tanh => Some((self.sums.as_ref()?, kernel!(dtype, "gelu_tanh_backward_sums"))),
            GeluForm::Exact => None,
        }
    }
}

impl Cheap for Gelu {
    fn backward_with_output(&mut self, saved: Kept, mut grad: Tensor) -> Result<(Tensor, Kept, Tensor)> {
        let ctx = saved.ctx;
        let [mut tensor] = saved.into_tensors();
        match grad.gpu()? {
            Some(gpu) => {
                let (dtype, count) = (grad.dtype(), grad.shape().count());
                if let Some((sums, _)) = self.sums(dtype).filter(|(sums, _)| sums.are_used()) {
                    let kernel = kernel!(dtype, "gelu_tanh_backward_and_forward_sums");
                    sums.make(&gpu, kernel, &mut grad, tensor.at_mut(&gpu)?)?;
                    return Ok((grad, Kept::new(ctx, []), tensor));
                }
                let kernel = match self.form {
                    GeluForm::Tanh => kernel!(dtype, "gelu_tanh_backward_and_forward"),
                    GeluForm::Exact => kernel!(dtype, "gelu_exact_backward_and_forward"),
                };
                gpu.each(kernel, [grad.at_mut(&gpu)?, tensor.at_mut(&gpu)?], count)?;
            }
            None => in_format!(grad.dtype(), N => {
                let backward_and_forward = match self.form {
                    GeluForm::Tanh => backward_and_forward::<N, GeluTanh>,
                    GeluForm::Exact => backward_and_forward::<N, GeluExact>,
                };
                backward_and_forward(grad.numbers_mut(), tensor.numbers_mut());
            }),
        }
        Ok((grad, Kept::new(ctx, []), tensor))
    }
}

/// `x/2 (1 + tanh(u))`, which is `x sigmoid(2 u)`, with `u = sqrt(2 / pi) (x + 0.044715 x^3)`. Hendrycks and
/// Gimpel, "Gaussian error linear units" (2016).
pub(crate) struct GeluTanh;

impl GeluTanh {
    /// `2 sqrt(2 / pi)`.
    const SLOPE: f32 = 1.595_769;
    const CUBIC: f32 = 0.044_715;
}

impl Activation for GeluTanh {
    #[inline(always)]
    fn first_half(x: f32) -> f32 {
        bounded_exp(-(Self::SLOPE * x * (Self::CUBIC * x).mul_add(x, 1.0)))
    }

    #[inline(always)]
    fn second_half(x: f32, first: f32) -> [f32; 2] {
        let [gate, rest] = sigmoid(first);
        let inner = Self::SLOPE * (3.0 * Self::CUBIC * x).mul_add(x, 1.0);
        [x * gate, (x * inner * gate).mul_add(rest, gate)]
    }
}

/// `x/2 (1 + erf(x / sqrt(2)))`, of the same paper.
pub(crate) struct GeluExact;

impl GeluExact {
    /// `1 / sqrt(2 pi)`, the normal density at 0.
    const DENSITY: f32 = 0.398_942_3;
}

impl Activation for GeluExact {
    #[inline(always)]
    fn first_half(x: f32) -> f32 {
        0.5 * erfc(x.abs() * std::f32::consts::FRAC_1_SQRT_2)
    }

    #[inline(always)]
    fn second_half(x: f32, first: f32) -> [f32; 2] {
        let normal = if x < 0.0 { first } else { 1.0 - first };
        [x * normal, (x * Self::DENSITY).mul_add(exp(-0.5 * x * x), normal)]
    }
}
