//! The numbers of a gradient, on its device.

use std::collections::VecDeque;
use std::ops::Range;

use crate::cpu::elementwise::add_to_bytes;
use crate::cuda::Memory;
use crate::error::Result;
use crate::tensor::numbers::Numbers;

/// The size of a number in bytes.
pub(crate) const SIZE: usize = size_of::<f32>();

/// A gradient's numbers.
#[derive(Debug)]
pub(crate) enum GradientBuffer {
    /// On the host.
    Host(Numbers),
    /// Device memory and the number of elements. A parameter may share the memory.
    Gpu(Memory, usize),
}

impl GradientBuffer {
    /// Appends these numbers to `block` as bytes. On a GPU it first waits for all work queued before.
    ///
    /// # Errors
    /// When the GPU reports an error, of this call or of earlier work.
    pub(crate) fn append_to(&self, range: Range<usize>, block: &mut Vec<u8>) -> Result<()> {
        match self {
            Self::Host(numbers) => {
                block.extend_from_slice(bytemuck::cast_slice(&numbers[range]));
                Ok(())
            }
            Self::Gpu(memory, _) => download(memory, range, block),
        }
    }

    /// Adds these numbers, from this place on, to those in `bytes`. On a GPU it first waits for all work
    /// queued before.
    ///
    /// # Errors
    /// When the GPU reports an error, of this call or of earlier work.
    pub(crate) fn add_to_bytes(&self, start: usize, bytes: &mut [u8]) -> Result<()> {
        match self {
            Self::Host(numbers) => {
                add_to_bytes(bytes.as_chunks_mut().0, &numbers[start..]);
                Ok(())
            }
            Self::Gpu(memory, _) => add_download(memory, start, bytes),
        }
    }
}

/// The numbers in these bytes.
pub(crate) fn numbers_in(bytes: &[u8]) -> impl Iterator<Item = f32> {
    bytes.as_chunks().0.iter().map(|bytes| f32::from_ne_bytes(*bytes))
}

/// Adds the numbers from this place in a GPU's memory on to as many in `bytes`.
pub(crate) fn add_download(memory: &Memory, start: usize, bytes: &mut [u8]) -> Result<()> {
    let mut block = Vec::new();
    download(memory, start..start + bytes.len() / SIZE, &mut block)?;
    let pairs = bytes.as_chunks_mut().0.iter_mut().zip(numbers_in(&block));
    pairs.for_each(|(number, more)| *number = (f32::from_ne_bytes(*number) + more).to_ne_bytes());
    Ok(())
}

/// Appends these numbers of a GPU's memory to `block`, after all work queued before.
pub(crate) fn download(memory: &Memory, range: Range<usize>, block: &mut Vec<u8>) -> Result<()> {
    let start = block.len();
    block.resize(start + range.len() * SIZE, 0);
    let at = memory.at().offset(range.start * SIZE);
    memory.gpu()?.download(at, &mut block[start..])
}

/// The sum in a gradient, and the earlier sums that wait to be added to it.
#[derive(Debug, Default)]
pub(crate) struct Sums {
    /// Whether the layer asks [`Parameter::starts_sum`](crate::Parameter::starts_sum) each time before it
    /// adds a gradient.
    pub(crate) by_layer: bool,
    /// What the next gradient finds.
    pub(crate) found: Found,
    /// The sums of earlier gradient groups, oldest first.
    pub(crate) waiting: Vec<GradientBuffer>,
    /// How many of the sums before this one, newest first, are added to it when it is complete.
    pub(crate) due: usize,
    /// Whether the gradient has the rows of all shards.
    pub(crate) has_all_rows: bool,
    /// The gradients of micro-batches that are kept apart, in their order.
    pub(crate) apart: VecDeque<Numbers>,
    /// Memory of sums that have been added.
    pub(crate) spare: Vec<GradientBuffer>,
    /// How many of them are lent to other parameters.
    pub(crate) lent: usize,
}

/// What is in the gradient when a layer adds to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Found {
    /// A sum, which may be zero.
    #[default]
    Sum,
    /// Unspecified numbers. They count as zeros.
    Nothing,
    /// The newest of the sums that wait. It has not been put aside yet, since the next gradient may be added
    /// to it in place.
    Newest,
}
