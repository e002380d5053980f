//! Gated activations on GPUs.

use crate::cuda::launch::kernel;
use crate::cuda::{Gpu, Grid, Ptr};
use crate::device::DType;
use crate::error::Result;
use crate::layers::gated::cpu::GateForm;
use crate::layers::norm::cuda::Rows;

/// The threads of a block.
const THREADS: u32 = 256;

/// What a kernel does, as the functions of the same names in [`crate::layers::gated::cpu`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pass {
    Forward,
    Backward,
    BackwardAndForward,
}

impl Gpu {
    /// Works on `rows` of `single` numbers, the output or its gradient, and the input, whose rows have twice
    /// that width.
    pub(crate) fn gated(
        &self,
        (pass, form, dtype): (Pass, GateForm, DType),
        single: Ptr,
        double: Ptr,
        rows: Rows,
    ) -> Result<()> {
        let name = match (pass, form) {
            (Pass::Forward, GateForm::Silu) => kernel!(dtype, "gated_silu_forward"),
            (Pass::Forward, GateForm::GeluTanh) => kernel!(dtype, "gated_gelu_tanh_forward"),
            (Pass::Forward, GateForm::Gelu) => kernel!(dtype, "gated_gelu_forward"),
            (Pass::Backward, GateForm::Silu) => kernel!(dtype, "gated_silu_backward"),
            (Pass::Backward, GateForm::GeluTanh) => kernel!(dtype, "gated_gelu_tanh_backward"),
            (Pass::Backward, GateForm::Gelu) => kernel!(dtype, "gated_gelu_backward"),
            (Pass::BackwardAndForward, GateForm::Silu) => kernel!(dtype, "gated_silu_backward_and_forward"),
            (Pass::BackwardAndForward, GateForm::GeluTanh) => {
                kernel!(dtype, "gated_gelu_tanh_backward_and_forward")
            }
            (Pass::BackwardAndForward, GateForm::Gelu) => kernel!(dtype, "gated_gelu_backward_and_forward"),
        };
        let args = [
            single.into(),
            double.into(),
            (rows.count as u64).into(),
            (rows.width as u32).into(),
        ];
        let grid = Grid::each(rows.count * rows.width.div_ceil(8), THREADS);
        self.launch(name, grid, &args)
    }
}
