//! Moving tensors from another thread or device.

use crate::cpu::real::{convert, in_format};
use crate::cuda::Gpu;
use crate::device::{DType, Device, Place};
use crate::error::Result;
use crate::shape::Kind;
use crate::tensor::Tensor;

impl Tensor {
    /// The same numbers in another place. Ids stay on the host. A copy to the host waits until the numbers
    /// are there.
    ///
    /// # Errors
    /// When there is no such device, it has too little memory, or it does not support the number format.
    #[inline]
    pub fn to(self, place: Place) -> Result<Self> {
        if self.shape.kind() == Kind::Ids || self.place() == place {
            return Ok(self);
        }
        if let Some(gpu) = self.gpu()? {
            // A transfer that still fills the memory has marked it. The mark below replaces that mark, so
            // this stream must wait for the transfer first.
            gpu.wait_ready(self.device_memory())?;
        }
        self.mark_ready()?;
        let there = self.arrive(place)?;
        there.mark_ready()?;
        Ok(there)
    }

    /// Lets another thread use the tensor from here on: that thread's work will wait for the work that this
    /// thread has queued so far.
    #[inline]
    pub(crate) fn mark_ready(&self) -> Result<()> {
        match self.gpu()? {
            Some(gpu) => gpu.mark_ready(self.device_memory()),
            None => Ok(()),
        }
    }

    /// A tensor that another thread gave and [marked](Self::mark_ready), moved to this place. A copy to the
    /// host waits until the numbers are there.
    #[inline]
    pub(crate) fn arrive(self, place: Place) -> Result<Self> {
        if self.shape.kind() == Kind::Ids {
            return Ok(self);
        }
        match (self.place().device, place.device) {
            (Device::Cpu, Device::Cpu) => self.converted(place.dtype),
            _ => arrived(self, place),
        }
    }

    /// Numbers on the host, in this format.
    #[inline]
    pub(crate) fn converted(self, dtype: DType) -> Result<Self> {
        if self.dtype() == dtype {
            return Ok(self);
        }
        let mut copy = Self::on_host_in(dtype, self.dims())?;
        in_format!(dtype, N => in_format!(self.dtype(), M => {
            convert(copy.numbers_mut::<N>(), self.numbers::<M>());
        }));
        Ok(copy)
    }
}

/// A tensor that is marked as ready, moved to this place and number format. A copy to the host waits until
/// the numbers are there; otherwise only streams wait.
fn arrived(tensor: Tensor, place: Place) -> Result<Tensor> {
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
