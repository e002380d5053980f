//! Moving tensors from another thread or device.

use crate::cuda::Gpu;
use crate::device::{DType, Device, Place};
use crate::error::Result;
use crate::tensor::Tensor;

/// A tensor that is marked as ready, moved to this place and number format. A copy to the host waits until
/// the numbers are there; otherwise only streams wait.
pub(crate) fn arrived(tensor: Tensor, place: Place) -> Result<Tensor> {
    match (tensor.place().device, place.device) {
        (Device::Cpu, Device::Cpu) => tensor.converted(place.dtype),
        (Device::Cpu, Device::Cuda(index)) => {
            let gpu = Gpu::of(index)?;
            let copy = uploaded(&gpu, &tensor)?;
            cast(&gpu, copy, place.dtype)
        }
        (Device::Cuda(index), Device::Cpu) => {
            let gpu = Gpu::of(index)?;
            gpu.wait_ready(tensor.device_memory())?;
            let tensor = cast(&gpu, tensor, place.dtype)?;
            downloaded(&gpu, &tensor)
        }
        (Device::Cuda(from), Device::Cuda(to)) if from == to => {
            let gpu = Gpu::of(to)?;
            gpu.wait_ready(tensor.device_memory())?;
            cast(&gpu, tensor, place.dtype)
        }
        (Device::Cuda(_), Device::Cuda(to)) => {
            let gpu = Gpu::of(to)?;
            let (dtype, shape) = (tensor.dtype(), *tensor.shape());
            let copy = gpu.received(tensor.into_memory())?;
            cast(&gpu, Tensor::in_memory(copy, dtype, shape.dims()), place.dtype)
        }
    }
}

fn uploaded(gpu: &Gpu, tensor: &Tensor) -> Result<Tensor> {
    let copy = Tensor::on_gpu(gpu, tensor.dtype(), tensor.dims())?;
    gpu.upload_to(copy.at(), tensor.as_bytes())?;
    Ok(copy)
}

fn downloaded(gpu: &Gpu, tensor: &Tensor) -> Result<Tensor> {
    let mut copy = Tensor::on_host_in(tensor.dtype(), tensor.dims())?;
    gpu.download(tensor.at(), copy.as_bytes_mut())?;
    Ok(copy)
}

/// The same numbers in another format.
fn cast(gpu: &Gpu, tensor: Tensor, dtype: DType) -> Result<Tensor> {
    if tensor.dtype() == dtype {
        return Ok(tensor);
    }
    let copy = Tensor::on_gpu(gpu, dtype, tensor.dims())?;
    let (out, input, count) = (copy.at(), tensor.at(), tensor.shape().count());
    match dtype {
        DType::F32 => gpu.cast_to_f32(out, input, count)?,
        DType::Bf16 => gpu.cast_to_bf16(out, input, count)?,
    }
    Ok(copy)
}
