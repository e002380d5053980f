//! Numbers of a stage's parameters, packed in the memory of its GPU: what goes from GPU to GPU.

use std::ops::Range;

use crate::cuda::{Gpu, Memory, Ptr};
use crate::device::{DType, Device, Place};
use crate::error::{Error, Result};
use crate::parameter::Parameter;
use crate::parameter::gradient_buffer::{GradientBuffer, SIZE};
use crate::parameter::weights::Weights;
use crate::tensor::Tensor;

/// `f32` numbers in the memory of a GPU. They may be of several parameters, one after the other.
#[derive(Debug)]
pub struct Packed {
    memory: Memory,
    /// The first one's place in the memory.
    start: usize,
    count: usize,
}

impl Packed {
    /// Room for `count` numbers on a GPU. The numbers are unspecified.
    ///
    /// # Errors
    /// When the device is no GPU, or it has too little memory.
    pub fn new(device: Device, count: usize) -> Result<Self> {
        let Device::Cuda(index) = device else {
            return Err(on_host());
        };
        Ok(Self::of_memory(Gpu::of(index)?.memory_of(count * SIZE)?, count))
    }

    /// The first numbers of this memory.
    pub(crate) fn of_memory(memory: Memory, count: usize) -> Self {
        Self { memory, start: 0, count }
    }

    /// How many numbers there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Some of these numbers, in the same memory.
    ///
    /// # Panics
    /// When there are no such numbers.
    #[must_use]
    pub fn part(&self, range: Range<usize>) -> Self {
        assert!(
            range.start <= range.end && range.end <= self.count,
            "there are {} numbers, not {range:?}",
            self.count
        );
        Self { memory: self.memory.clone(), start: self.start + range.start, count: range.len() }
    }

    /// The same numbers in memory of their own.
    ///
    /// # Errors
    /// When the GPU has too little memory, or reports an error, of this call or of earlier work.
    pub fn copied(&self) -> Result<Self> {
        let copy = Self::new(Device::Cuda(self.memory.device()), self.count)?;
        copy.copy_from(self.at())?;
        Ok(copy)
    }

    /// Adds as many other numbers, on the same GPU.
    ///
    /// # Errors
    /// When the GPU reports an error, of this call or of earlier work.
    pub fn add(&mut self, more: &Self) -> Result<()> {
        let gpu = self.memory.gpu()?;
        gpu.add(DType::F32, self.at(), self.at(), more.at(), self.count)
    }

    /// The numbers' memory, from their first one on.
    pub(crate) fn into_memory(self) -> Result<Memory> {
        match self.start {
            0 => Ok(self.memory),
            _ => Ok(self.copied()?.memory),
        }
    }

    /// The numbers as a tensor for another thread: `f32`, one dimension, on the same GPU.
    pub(crate) fn into_tensor(self) -> Result<Tensor> {
        let count = self.count;
        // Another thread may write there as soon as this one has sent it.
        let own = match self.memory.is_shared() {
            true => self.copied()?,
            false => self,
        };
        let tensor = Tensor::in_memory(own.into_memory()?, DType::F32, &[count]);
        tensor.mark_ready()?;
        Ok(tensor)
    }

    /// The numbers in a tensor that another thread made with [`Packed::into_tensor`], moved to this GPU.
    pub(crate) fn of_tensor(tensor: Tensor, device: Device) -> Result<Self> {
        let dtype = DType::F32;
        let count = tensor.shape().count();
        let here = tensor.arrive(Place { device, dtype })?;
        let packed = Self::of_memory(here.into_memory(), count);
        // Numbers may be added to it, and other owners of the tensor must not see that.
        match packed.memory.is_shared() {
            true => packed.copied(),
            false => Ok(packed),
        }
    }

    fn at(&self) -> Ptr {
        self.memory.at().offset(self.start * SIZE)
    }

    fn copy_from(&self, from: Ptr) -> Result<()> {
        self.memory.gpu()?.copy(self.at(), from, self.count * SIZE)
    }
}

impl Parameter {
    /// Copies numbers of a sum, from this place on, into `to`: as many as it has room for. The sum is named
    /// as for [`Parameter::append_sum`].
    ///
    /// # Errors
    /// When the parameter is not on the GPU of `to`, or that reports an error, of this call or of earlier
    /// work.
    pub fn pack_sum(&self, sum: usize, start: usize, to: &mut Packed) -> Result<()> {
        let from = match self.sums.waiting.get(sum) {
            Some(GradientBuffer::Gpu(memory, _)) => memory.at(),
            Some(GradientBuffer::Host(_)) => return Err(on_host()),
            None => self.there()?.grad()?,
        };
        to.copy_from(from.offset(start * SIZE))
    }

    /// Copies weights, from this place on, into `to`: as many as it has room for.
    ///
    /// # Errors
    /// As for [`Parameter::pack_sum`].
    pub fn pack_value(&self, start: usize, to: &mut Packed) -> Result<()> {
        to.copy_from(self.there()?.value().offset(start * SIZE))
    }

    /// Sets the gradient from this place on.
    ///
    /// # Errors
    /// As for [`Parameter::pack_sum`].
    pub fn unpack_grad(&mut self, start: usize, from: &Packed) -> Result<()> {
        let to = self.there()?.grad()?.offset(start * SIZE);
        from.memory.gpu()?.copy(to, from.at(), from.count * SIZE)
    }

    /// Sets the weights from this place on.
    ///
    /// # Errors
    /// As for [`Parameter::pack_sum`].
    pub fn unpack_value(&mut self, start: usize, from: &Packed) -> Result<()> {
        self.there()?.copy_value(start, from.at(), from.count)
    }

    /// The numbers on a GPU.
    fn there(&self) -> Result<&Weights> {
        self.on_gpu().ok_or_else(on_host)
    }
}

/// The error for numbers that should go to another rank's GPU, and are on the host.
pub(super) fn on_host() -> Error {
    Error::new("a gradient on the host goes to others as bytes")
}
