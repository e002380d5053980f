//! A matrix of blocks on a GPU.

use super::{Quantisation, Quantised};
use crate::cuda::launch::{args, kernel};
use crate::cuda::{Gpu, Grid, Memory, Ptr};
use crate::device::DType;
use crate::error::Result;

/// The threads of a block of the kernel. Each decodes [`AT_ONCE`] numbers.
const THREADS: u32 = 256;
const AT_ONCE: usize = 8;

/// The threads of a warp.
const WARP: usize = 32;

/// The most rows of a product that decodes in registers. It is the same in `few_rows.cu`.
///
/// A decoded copy in `bf16` is written and read, with 2 bytes a number each time, and blocks of 4.5 bits have
/// 0.56 bytes a number. So without the copy an eighth of the bytes is moved. But each row takes a
/// multiplication for each number, and not on tensor cores. With more rows these would take longer than the
/// bytes.
pub(crate) const FEW_ROWS: usize = 8;

/// The outputs of a warp of such a product: as in `few_rows.cu`.
const OUTPUTS: usize = 2;

/// A matrix of blocks on a GPU. When text is written, products of few rows read the blocks. All others read a
/// decoded copy, which is made for each product.
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

    /// `out = left W^T + bias` for this matrix `W`, which has a row for each output, and [`FEW_ROWS`] at most
    /// on the left. All other numbers are in this format.
    ///
    /// Each sum has one order, whatever the number of rows, and is in `f32`.
    pub(crate) fn multiply_few(
        &self,
        gpu: &Gpu,
        dtype: DType,
        [out, left]: [Ptr; 2],
        rows: usize,
        bias: Option<Ptr>,
    ) -> Result<()> {
        assert!(rows <= FEW_ROWS, "{rows} rows are more than a few");
        let name = match rows {
            1 => kernel!(dtype, "multiply_row"),
            _ => kernel!(dtype, "multiply_rows"),
        };
        let outputs: usize = self.parts.iter().map(|part| part.rows).sum();
        let mut first = 0;
        for part in &self.parts {
            let of_part = |at: Ptr| at.offset(first * dtype.bytes());
            let (out, bias) = (of_part(out), bias.map_or(Ptr::NONE, of_part));
            let (memory, kind) = (&part.memory, part.kind as u32);
            let args = args![out, left, memory, bias, rows, self.columns, part.rows, outputs, kind];
            gpu.launch(name, Grid::each(part.rows.div_ceil(OUTPUTS) * WARP, THREADS), &args)?;
            first += part.rows;
        }
        Ok(())
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
