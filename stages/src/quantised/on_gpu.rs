//! A matrix of blocks on a GPU.

use super::{Quantisation, Quantised};
use crate::cuda::launch::{args, kernel};
use crate::cuda::{Gpu, Grid, Memory, Ptr};
use crate::device::DType;
use crate::error::Result;

/// The threads of a block of the kernel. Each decodes [`AT_ONCE`] numbers.
const THREADS: u32 = 256;
const AT_ONCE: usize = 8;

/// A matrix of blocks on a GPU. Products read a decoded copy, which is made for each product.
#[derive(Debug)]
pub(crate) struct BlocksOnGpu {
    columns: usize,
    parts: Vec<Part>,
}

#[derive(Debug)]
struct Part {
    kind: Quantisation,
    rows: usize,
    memory: Memory,
}

impl BlocksOnGpu {
    pub(crate) fn new(gpu: &Gpu, blocks: &Quantised) -> Result<Self> {
        let columns = blocks.columns();
        let part = |(kind, bytes): (Quantisation, &[u8])| {
            let memory = gpu.lasting_memory_of(bytes.len())?;
            gpu.upload_to(memory.at(), bytes)?;
            Ok(Part { kind, rows: bytes.len() / kind.bytes(columns), memory })
        };
        Ok(Self { columns, parts: blocks.chunks().map(part).collect::<Result<_>>()? })
    }

    /// All numbers in this format, row by row.
    pub(crate) fn decoded(&self, gpu: &Gpu, dtype: DType) -> Result<Memory> {
        let rows: usize = self.parts.iter().map(|part| part.rows).sum();
        let memory = gpu.memory_of(rows * self.columns * dtype.bytes())?;
        let mut to = memory.at();
        for part in &self.parts {
            self.decode(gpu, dtype, to, part, Ptr::NONE, part.rows)?;
            to = to.offset(part.rows * self.columns * dtype.bytes());
        }
        Ok(memory)
    }

    /// Decodes these rows to `to`, one behind the other.
    pub(crate) fn decode_rows(&self, gpu: &Gpu, dtype: DType, to: Ptr, rows: &[u32]) -> Result<()> {
        let [part] = &self.parts[..] else {
            return self.copy_rows(gpu, dtype, to, rows);
        };
        let list = gpu.upload(bytemuck::cast_slice(rows))?;
        self.decode(gpu, dtype, to, part, list.at(), rows.len())
    }

    /// As [`BlocksOnGpu::decode_rows`], if there are blocks of several kinds.
    fn copy_rows(&self, gpu: &Gpu, dtype: DType, to: Ptr, rows: &[u32]) -> Result<()> {
        let (all, bytes) = (self.decoded(gpu, dtype)?, self.columns * dtype.bytes());
        let mut each = rows.iter().enumerate();
        each.try_for_each(|(place, &row)| {
            gpu.copy(to.offset(place * bytes), all.at().offset(row as usize * bytes), bytes)
        })
    }

    fn decode(&self, gpu: &Gpu, dtype: DType, to: Ptr, part: &Part, list: Ptr, rows: usize) -> Result<()> {
        let eights = rows * self.columns / AT_ONCE;
        let args = args![to, &part.memory, list, eights, self.columns, part.kind as u32];
        gpu.launch(kernel!(dtype, "decode_blocks"), Grid::each(eights, THREADS), &args)
    }
}
