//! Kernels that work on single numbers.

use super::launch::kernel;
use super::{Gpu, Grid, Ptr};
use crate::device::DType;
use crate::error::Result;

/// The threads of a block.
const THREADS: u32 = 256;

/// A grid with one thread for every eight numbers.
fn eights(count: usize) -> Grid {
    Grid::each(count.div_ceil(8), THREADS)
}

impl Gpu {
    /// Launches a kernel on two tensors of `count` numbers each.
    fn pairs(&self, name: &'static str, a: Ptr, b: Ptr, count: usize) -> Result<()> {
        self.launch(name, eights(count), &[a.into(), b.into(), (count as u64).into()])
    }

    /// `out = a + b`, each `count` numbers. `out` may be `a` or `b`.
    pub(crate) fn add(&self, dtype: DType, out: Ptr, a: Ptr, b: Ptr, count: usize) -> Result<()> {
        let args = [out.into(), a.into(), b.into(), (count as u64).into()];
        self.launch(kernel!(dtype, "add"), eights(count), &args)
    }

    /// Like [`crate::cpu::elementwise::multiply`].
    pub(crate) fn multiply(&self, dtype: DType, product: Ptr, factor: Ptr, count: usize) -> Result<()> {
        self.pairs(kernel!(dtype, "multiply"), product, factor, count)
    }

    /// `out = input`, rounded from `f32` to `bf16`.
    pub(crate) fn cast_to_bf16(&self, out: Ptr, input: Ptr, count: usize) -> Result<()> {
        self.pairs("cast_f32_to_bf16", out, input, count)
    }

    /// `out = input`, from `bf16` to `f32`.
    pub(crate) fn cast_to_f32(&self, out: Ptr, input: Ptr, count: usize) -> Result<()> {
        self.pairs("cast_bf16_to_f32", out, input, count)
    }

    /// Like [`crate::cpu::elementwise::relu`].
    pub(crate) fn relu(&self, dtype: DType, numbers: Ptr, count: usize) -> Result<()> {
        let args = [numbers.into(), (count as u64).into()];
        self.launch(kernel!(dtype, "relu_forward"), eights(count), &args)
    }

    /// Like [`crate::cpu::elementwise::relu_grad`].
    pub(crate) fn relu_grad(&self, dtype: DType, grad: Ptr, output: Ptr, count: usize) -> Result<()> {
        self.pairs(kernel!(dtype, "relu_backward"), grad, output, count)
    }

    /// Like [`crate::layers::pointwise::cpu_sigmoid::forward`].
    pub(crate) fn sigmoid(&self, dtype: DType, out: Ptr, input: Ptr, count: usize) -> Result<()> {
        self.pairs(kernel!(dtype, "sigmoid_forward"), out, input, count)
    }

    /// Like [`crate::layers::pointwise::cpu_sigmoid::backward`].
    pub(crate) fn sigmoid_backward(&self, dtype: DType, grad: Ptr, input: Ptr, count: usize) -> Result<()> {
        self.pairs(kernel!(dtype, "sigmoid_backward"), grad, input, count)
    }

    /// Like [`crate::layers::pointwise::cpu_gelu::forward`].
    pub(crate) fn gelu(&self, dtype: DType, exact: bool, out: Ptr, input: Ptr, count: usize) -> Result<()> {
        let name = match exact {
            true => kernel!(dtype, "gelu_exact_forward"),
            false => kernel!(dtype, "gelu_tanh_forward"),
        };
        self.pairs(name, out, input, count)
    }

    /// Like [`crate::layers::pointwise::cpu_gelu::backward`].
    pub(crate) fn gelu_backward(
        &self,
        dtype: DType,
        exact: bool,
        grad: Ptr,
        input: Ptr,
        count: usize,
    ) -> Result<()> {
        let name = match exact {
            true => kernel!(dtype, "gelu_exact_backward"),
            false => kernel!(dtype, "gelu_tanh_backward"),
        };
        self.pairs(name, grad, input, count)
    }

    /// Like [`crate::layers::pointwise::cpu_gelu::backward_and_forward`].
    pub(crate) fn gelu_backward_and_forward(
        &self,
        dtype: DType,
        exact: bool,
        grad: Ptr,
        input: Ptr,
        count: usize,
    ) -> Result<()> {
        let name = match exact {
            true => kernel!(dtype, "gelu_exact_backward_and_forward"),
            false => kernel!(dtype, "gelu_tanh_backward_and_forward"),
        };
        self.pairs(name, grad, input, count)
    }
}
