//! Gated activations.

use crate::cuda::launch::kernel;
use crate::cuda::{Gpu, Grid, Ptr};
use crate::device::DType;
use crate::error::Result;
use crate::layers::gated::cpu::GateForm;
use crate::layers::norm::cuda::Rows;

/// The threads of a block.
const THREADS: u32 = 256;

impl Gpu {
    fn halves(&self, name: &'static str, single: Ptr, double: Ptr, rows: Rows) -> Result<()> {
        let args = [
            single.into(),
            double.into(),
            (rows.count as u64).into(),
            (rows.width as u32).into(),
        ];
        let grid = Grid::each(rows.count * rows.width.div_ceil(8), THREADS);
        self.launch(name, grid, &args)
    }

    /// Like [`crate::layers::gated::cpu::forward`]. `rows` are the rows of `out`.
    pub(crate) fn gated(&self, dtype: DType, form: GateForm, out: Ptr, input: Ptr, rows: Rows) -> Result<()> {
        let name = match form {
            GateForm::Silu => kernel!(dtype, "gated_silu_forward"),
            GateForm::GeluTanh => kernel!(dtype, "gated_gelu_tanh_forward"),
            GateForm::Gelu => kernel!(dtype, "gated_gelu_forward"),
        };
        self.halves(name, out, input, rows)
    }

    /// Like [`crate::layers::gated::cpu::backward`]. `rows` are the rows of `grad`.
    pub(crate) fn gated_backward(
        &self,
        dtype: DType,
        form: GateForm,
        grad: Ptr,
        input: Ptr,
        rows: Rows,
    ) -> Result<()> {
        let name = match form {
            GateForm::Silu => kernel!(dtype, "gated_silu_backward"),
            GateForm::GeluTanh => kernel!(dtype, "gated_gelu_tanh_backward"),
            GateForm::Gelu => kernel!(dtype, "gated_gelu_backward"),
        };
        self.halves(name, grad, input, rows)
    }

    /// Like [`crate::layers::gated::cpu::backward_and_forward`]. `rows` are the rows of `grad`.
    pub(crate) fn gated_backward_and_forward(
        &self,
        dtype: DType,
        form: GateForm,
        grad: Ptr,
        input: Ptr,
        rows: Rows,
    ) -> Result<()> {
        let name = match form {
            GateForm::Silu => kernel!(dtype, "gated_silu_backward_and_forward"),
            GateForm::GeluTanh => kernel!(dtype, "gated_gelu_tanh_backward_and_forward"),
            GateForm::Gelu => kernel!(dtype, "gated_gelu_backward_and_forward"),
        };
        self.halves(name, grad, input, rows)
    }
}
