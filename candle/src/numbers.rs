//! Numbers between candle's tensors and the tensors of stages.

use candle_core::{CpuStorage, DType, Device, InplaceOp1, Layout, Storage, Var, bail};
use pipewright_stages::{Kind, MAX_DIMS, Tensor};

use crate::error::{CandleError, Result};

/// A copy of a tensor, for candle.
pub(crate) fn to_candle(tensor: &Tensor) -> Result<candle_core::Tensor> {
    let dims = tensor.dims();
    Ok(match tensor.shape().kind() {
        Kind::F32 => candle_core::Tensor::from_slice(tensor.f32(), dims, &Device::Cpu)?,
        Kind::Ids => candle_core::Tensor::from_slice(tensor.ids(), dims, &Device::Cpu)?,
    })
}

/// A copy of an output of candle's.
pub(crate) fn from_candle(output: &candle_core::Tensor) -> Result<Tensor> {
    if output.rank() > MAX_DIMS {
        return Err(CandleError::TooManyDims(output.dims().to_vec()));
    }
    let mut copy = Tensor::scratch(output.dims());
    read(output, "the output", |numbers| copy.f32_mut().copy_from_slice(numbers))?;
    Ok(copy)
}

/// Shows the numbers of a tensor, row-major. For errors, `what` says which one it is.
pub(crate) fn read(tensor: &candle_core::Tensor, what: &str, show: impl FnOnce(&[f32])) -> Result<()> {
    check(tensor, what)?;
    let whole = tensor.contiguous()?;
    let (storage, layout) = whole.storage_and_layout();
    if let (Storage::Cpu(storage), Some((start, end))) = (&*storage, layout.contiguous_offsets()) {
        show(&storage.as_slice::<f32>()?[start..end]);
    }
    Ok(())
}

/// Fails if a tensor has other numbers than `f32`, or is not on the CPU.
pub(crate) fn check(tensor: &candle_core::Tensor, what: &str) -> Result<()> {
    let what = what.to_owned();
    if !tensor.device().is_cpu() {
        return Err(CandleError::NotOnCpu { what });
    }
    match tensor.dtype() {
        DType::F32 => Ok(()),
        dtype => Err(CandleError::NotF32 { what, dtype }),
    }
}

/// Sets the numbers of a variable, without a tensor in between.
pub(crate) fn write(var: &Var, numbers: &[f32]) -> Result<()> {
    Ok(var.inplace_op1(&Write(numbers))?)
}

struct Write<'a>(&'a [f32]);

impl InplaceOp1 for Write<'_> {
    fn name(&self) -> &'static str {
        "write"
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, layout: &Layout) -> candle_core::Result<()> {
        let Some((start, end)) = layout.contiguous_offsets() else { bail!("the variable is not contiguous") };
        match storage {
            CpuStorage::F32(numbers) if end - start == self.0.len() => {
                numbers[start..end].copy_from_slice(self.0);
                Ok(())
            }
            _ => bail!("the variable has other numbers than its parameter"),
        }
    }
}
