//! A parameter's gradient as a value of its own, to be summed with others.

use std::ops::Range;

use crate::cpu::elementwise::add_both;
use crate::device::DType;
use crate::error::Result;
use crate::parameter::Parameter;
use crate::parameter::gradient_buffer::{GradientBuffer, SIZE, add_download, download, numbers_in};
use crate::parameter::packed::{Packed, on_host};

/// Code that uses the gradients of two stages together relies on this.
const ONE_DEVICE: &str = "the stages of a rank are on one device";

/// A gradient taken out of its parameter. It stays on the parameter's device.
#[derive(Debug)]
pub struct Gradient(GradientBuffer);

impl Gradient {
    /// Takes the gradient out of a parameter. [`Gradient::put_back`] returns it.
    ///
    /// # Errors
    /// When the GPU reports an error, of this call or of earlier work.
    pub fn take(parameter: &mut Parameter) -> Result<Self> {
        Ok(Self(match parameter.on_gpu() {
            Some(weights) => GradientBuffer::Gpu(weights.grad_memory()?, weights.trained()),
            None => GradientBuffer::Host(std::mem::take(&mut parameter.grad)),
        }))
    }

    /// Returns the gradient to the parameter that it was taken out of.
    pub fn put_back(self, parameter: &mut Parameter) {
        if let GradientBuffer::Host(numbers) = self.0 {
            parameter.grad = numbers;
        }
    }

    /// Adds another parameter's gradient to this one.
    ///
    /// # Errors
    /// When the GPU reports an error, of this call or of earlier work.
    pub fn add(&mut self, other: &Parameter) -> Result<()> {
        match (&mut self.0, other.on_gpu()) {
            (GradientBuffer::Host(total), None) => {
                total.iter_mut().zip(&*other.grad).for_each(|(number, more)| *number += more);
                Ok(())
            }
            (GradientBuffer::Gpu(total, count), Some(weights)) => {
                let at = total.at();
                weights.gpu()?.add(DType::F32, at, at, weights.grad()?, *count)
            }
            _ => unreachable!("{ONE_DEVICE}"),
        }
    }

    /// Adds another gradient, from a parameter on the same device.
    ///
    /// # Errors
    /// When the GPU reports an error, of this call or of earlier work.
    pub fn add_gradient(&mut self, other: &Self) -> Result<()> {
        match (&mut self.0, &other.0) {
            (GradientBuffer::Gpu(total, count), GradientBuffer::Gpu(more, _)) => {
                let at = total.at();
                total.gpu()?.add(DType::F32, at, at, more.at(), *count)
            }
            (_, GradientBuffer::Host(more)) => self.add_numbers(0, bytemuck::cast_slice(more)),
            _ => unreachable!("{ONE_DEVICE}"),
        }
    }

    /// A copy of the numbers, on the same GPU.
    ///
    /// # Errors
    /// When the gradient is on the host, or the GPU reports an error, of this call or of earlier work.
    pub fn packed(&self) -> Result<Packed> {
        match &self.0 {
            GradientBuffer::Gpu(memory, count) => Packed::of_memory(memory.clone(), *count).copied(),
            GradientBuffer::Host(_) => Err(on_host()),
        }
    }

    /// The gradient that has these numbers.
    ///
    /// # Errors
    /// When the GPU reports an error, of this call or of earlier work.
    pub fn of(packed: Packed) -> Result<Self> {
        let count = packed.count();
        Ok(Self(GradientBuffer::Gpu(packed.into_memory()?, count)))
    }

    /// Adds `f32` numbers in the byte form of [`Gradient::append_to`], from this place on.
    ///
    /// # Errors
    /// When the GPU reports an error, of this call or of earlier work.
    pub fn add_numbers(&mut self, start: usize, bytes: &[u8]) -> Result<()> {
        match &mut self.0 {
            GradientBuffer::Host(total) => {
                let more = numbers_in(bytes);
                let pairs = total[start..].iter_mut().zip(more);
                pairs.for_each(|(number, more)| *number += more);
                Ok(())
            }
            GradientBuffer::Gpu(total, _) => {
                let gpu = total.gpu()?;
                let (at, more) = (total.at().offset(start * SIZE), gpu.upload(bytes)?);
                gpu.add(DType::F32, at, at, more.at(), bytes.len() / SIZE)
            }
        }
    }

    /// Appends these numbers to `block` as bytes. For a gradient on a GPU, it first waits for all work queued
    /// before.
    ///
    /// # Errors
    /// When the GPU reports an error, of this call or of earlier work.
    pub fn append_to(&self, range: Range<usize>, block: &mut Vec<u8>) -> Result<()> {
        self.0.append_to(range, block)
    }

    /// Copies this gradient over another parameter's gradient.
    ///
    /// # Errors
    /// When the GPU reports an error, of this call or of earlier work.
    pub fn copy_to(&self, other: &mut Parameter) -> Result<()> {
        match (&self.0, other.on_gpu()) {
            (GradientBuffer::Host(numbers), None) => other.grad.copy_from_slice(numbers),
            (GradientBuffer::Gpu(memory, count), Some(weights)) => {
                return weights.gpu()?.copy(weights.grad()?, memory.at(), count * size_of::<f32>());
            }
            _ => unreachable!("{ONE_DEVICE}"),
        }
        Ok(())
    }
}

impl Parameter {
    /// Appends these numbers of the gradient to `block` as bytes. On a GPU it first waits for all work queued
    /// before.
    ///
    /// # Errors
    /// When the GPU reports an error, of this call or of earlier work.
    pub fn append_grad(&self, range: Range<usize>, block: &mut Vec<u8>) -> Result<()> {
        match self.on_gpu() {
            Some(weights) => return download(&weights.grad_memory()?, range, block),
            None => block.extend_from_slice(bytemuck::cast_slice(&self.grad[self.in_gradient(range)])),
        }
        Ok(())
    }

    /// Sets the gradient, from this place on, from bytes that [`Parameter::append_grad`] made.
    ///
    /// # Errors
    /// When the GPU reports an error, of this call or of earlier work.
    pub fn set_grad(&mut self, start: usize, bytes: &[u8]) -> Result<()> {
        if let Some(weights) = self.on_gpu() {
            let at = weights.grad()?.offset(start * SIZE);
            return weights.gpu()?.upload_to(at, bytes);
        }
        let numbers = self.in_gradient(start..start + bytes.len() / SIZE);
        bytemuck::cast_slice_mut(&mut self.grad[numbers]).copy_from_slice(bytes);
        Ok(())
    }

    /// Adds the gradient, from this place on, to the numbers in `bytes`, and sets both to the sum. On a GPU
    /// it first waits for all work queued before.
    ///
    /// # Errors
    /// When the GPU reports an error, of this call or of earlier work.
    pub fn add_grad(&mut self, start: usize, bytes: &mut [u8]) -> Result<()> {
        if let Some(weights) = self.on_gpu() {
            add_download(&weights.grad_memory()?, start, bytes)?;
            return self.set_grad(start, bytes);
        }
        let numbers = self.in_gradient(start..start + bytes.len() / SIZE);
        add_both(&mut self.grad[numbers], bytes.as_chunks_mut().0);
        Ok(())
    }

    /// Appends these weights to `block` as bytes. On a GPU it first waits for all work queued before.
    ///
    /// # Errors
    /// When the GPU reports an error, of this call or of earlier work.
    pub fn append_value(&self, range: Range<usize>, block: &mut Vec<u8>) -> Result<()> {
        match self.on_gpu() {
            Some(weights) => return download(weights.value_memory(), range, block),
            None => block.extend_from_slice(bytemuck::cast_slice(&self.value[range])),
        }
        Ok(())
    }

    /// Sets the weights, from this place on, from bytes that [`Parameter::append_value`] made.
    ///
    /// # Errors
    /// When the GPU reports an error, of this call or of earlier work.
    pub fn set_value(&mut self, start: usize, bytes: &[u8]) -> Result<()> {
        if let Some(weights) = self.on_gpu() {
            return weights.set_value(start, bytes);
        }
        let numbers: &mut [u8] = bytemuck::cast_slice_mut(&mut self.value[start..]);
        numbers[..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }
}
