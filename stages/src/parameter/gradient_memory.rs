//! A gradient's memory on a GPU.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::cuda::{Gpu, Memory, Product};
use crate::error::Result;

/// A gradient's memory on a GPU. The stream for gradients of weights may write it, so the compute stream uses
/// what it has [settled](GradientMemory::settled).
#[derive(Debug)]
pub(crate) struct GradientMemory {
    memory: Memory,
    /// The number of the last product that writes it on that stream. 0: nobody has to wait for one.
    written_by: AtomicU64,
}

impl GradientMemory {
    /// A gradient in this memory.
    pub(crate) fn new(memory: Memory) -> Self {
        Self { memory, written_by: AtomicU64::new(0) }
    }

    /// The index of its device.
    pub(crate) fn device(&self) -> u32 {
        self.memory.device()
    }

    /// The memory, for work on the compute stream. That waits for what another stream writes.
    pub(crate) fn settled(&self) -> Result<&Memory> {
        let number = self.written_by.load(Ordering::Relaxed);
        if number > 0
            && let Some(stream) = self.memory.gpu()?.weight_stream()
        {
            stream.await_product(number)?;
            self.written_by.store(0, Ordering::Relaxed);
        }
        Ok(&self.memory)
    }

    /// Exchanges the memory for another one.
    pub(crate) fn trade(&mut self, memory: &mut Memory) -> Result<()> {
        self.settled()?;
        std::mem::swap(&mut self.memory, memory);
        Ok(())
    }

    /// Writes the product of two whole tensors, which are in this memory. Returns whether there is a stream
    /// for that, beside the compute stream. If not, nothing is done.
    pub(crate) fn write_beside(
        &self,
        gpu: &Gpu,
        product: Product,
        [left, right]: [&Memory; 2],
    ) -> Result<bool> {
        let Some(stream) = gpu.weight_stream() else {
            return Ok(false);
        };
        let number = gpu.product_beside(stream, product, [&self.memory, left, right])?;
        self.written_by.store(number, Ordering::Relaxed);
        Ok(true)
    }
}
