//! Attention. Fused kernels on tensor cores run bf16 heads of the widths in [`FUSED`]; plain kernels
//! run all others.

use super::fused::{FUSED, Fused, ON_HOPPER, OnHopper};
use crate::cuda::hopper::TensorMap;
use crate::cuda::launch::{args, kernel};
use crate::cuda::{Gpu, Grid, Memory, Ptr};
use crate::device::DType;
use crate::error::{Error, Result};
use crate::layers::attention::cpu::sizes::Sizes;
use crate::stage::borders::OnGpu;
use crate::tensor::Tensor;

/// The threads in a block of a fused kernel and of `attention_delta`.
const FUSED_THREADS: u32 = 128;

/// The rows of a block of `attention_delta`. Eight threads share a row.
const DELTA_ROWS: usize = FUSED_THREADS as usize / 8;

/// The largest size of a grid in its third dimension.
const MOST_DEEP: usize = 65535;

/// The shared memory of a plain kernel's block in bytes, and the bytes that a warp uses for each number of a
/// head's row. The latter is the maximum over the kernels: four rows of f32.
const PLAIN_SHARED: usize = 48 << 10;
const PLAIN_BYTES: usize = 16;

/// The most warps in a plain kernel's block.
const MOST_WARPS: usize = 8;

/// The fused kernels for such heads, if there are any.
fn fused(dtype: DType, sizes: Sizes) -> Option<&'static Fused> {
    FUSED.iter().find(|fused| dtype == DType::Bf16 && fused.width == sizes.width)
}

/// The kernel for Hopper for such heads, if there is one.
fn on_hopper(sizes: Sizes) -> Option<&'static OnHopper> {
    ON_HOPPER.iter().find(|kernel| kernel.width == sizes.width)
}

/// What a copy of the kernels for Hopper takes: 64 columns of 64 rows of a vector.
const BOX: [u32; 4] = [64, 1, 64, 1];

/// A grid with one block for every `rows` rows of each of `heads` heads.
fn by_rows(rows: usize, heads: usize, [batch, time]: [usize; 2], shared: u32) -> Grid {
    let blocks = [time.div_ceil(rows), heads, batch];
    Grid { blocks: blocks.map(|blocks| blocks as u32), threads: FUSED_THREADS, shared }
}

/// The sequences of a launch, or its documents: how many there are, how many rows the longest has, and where
/// the table of documents is.
#[derive(Clone, Copy)]
struct Parts {
    count: usize,
    longest: usize,
    documents: Ptr,
}

impl Parts {
    fn new(batch: usize, time: usize, documents: Option<&OnGpu>) -> Self {
        match documents {
            Some(own) => Self { count: own.count, longest: own.longest, documents: own.documents.at() },
            None => Self { count: batch, longest: time, documents: Ptr::NONE },
        }
    }

    /// Which of the fused kernels it needs: for sequences, or for documents.
    fn kernel(self) -> usize {
        usize::from(self.documents != Ptr::NONE)
    }
}

/// A grid with one warp for each row of each of `heads` heads. A block has as many warps as its shared memory
/// allows.
fn by_warps(heads: usize, parts: Parts, sizes: Sizes) -> Result<Grid> {
    let width = sizes.width;
    let warps = (PLAIN_SHARED / (PLAIN_BYTES * width)).min(MOST_WARPS);
    if warps == 0 {
        return Err(too_wide(width, PLAIN_SHARED / PLAIN_BYTES));
    }
    // The rows of all sequences follow each other; each document has rows of its own.
    let [apart, together] = match parts.documents {
        Ptr::NONE => [1, parts.count],
        _ => [parts.count, 1],
    };
    check_deep(apart)?;
    let blocks = [(together * heads * parts.longest).div_ceil(warps) as u32, 1, apart as u32];
    Ok(Grid { blocks, threads: 32 * warps as u32, shared: (warps * PLAIN_BYTES * width) as u32 })
}

/// Refuses more sequences or documents than a grid's third dimension takes.
fn check_deep(count: usize) -> Result<()> {
    match count > MOST_DEEP {
        false => Ok(()),
        true => Err(Error::new(format!(
            "{count} sequences or documents at once are too many for a GPU's attention, which takes \
             {MOST_DEEP}: choose smaller micro-batches"
        ))),
    }
}

/// The error for heads that are wider than a kernel takes.
fn too_wide(width: usize, most: usize) -> Error {
    Error::new(format!(
        "heads of {width} numbers are too wide for a GPU, which takes {most}: choose more heads"
    ))
}

/// Sizes as arguments: rows of a sequence, query heads, key and value heads, width, and the keys that a query
/// sees at most.
fn size_args(sizes: Sizes) -> [usize; 5] {
    let window = sizes.window.min(sizes.time);
    [sizes.time, sizes.query, sizes.key_value, sizes.width, window]
}

impl Gpu {
    /// Like [`crate::layers::attention::cpu::forward`], for all sequences, or for documents. `lse` is f32.
    /// With documents it has `[query, rows]` of each, one after the other.
    ///
    /// # Errors
    /// When the heads are too wide for every kernel, there are too many sequences or documents, or the driver
    /// reports an error.
    pub(crate) fn attention_forward(
        &self,
        [out, lse, qkv]: [&Tensor; 3],
        sizes: Sizes,
        documents: Option<&OnGpu>,
    ) -> Result<()> {
        let (dtype, batch) = (qkv.dtype(), qkv.dims()[0]);
        let [time, query, key_value, width, window] = size_args(sizes);
        let parts = Parts::new(batch, sizes.time, documents);
        if let Some(fused) = fused(dtype, sizes) {
            check_deep(parts.count)?;
            if let Some(kernel) = on_hopper(sizes).filter(|_| self.uses_wgmma()) {
                return self.attention_forward_on_hopper(kernel, [out, lse, qkv], sizes, parts);
            }
            let grid = by_rows(fused.queries, sizes.query, [parts.count, parts.longest], fused.shared[0]);
            let args = args![out, lse, qkv, time, query, key_value, window, parts.documents];
            return self.launch(fused.forward[parts.kernel()], grid, &args);
        }
        let (scale, documents) = (sizes.scale(), parts.documents);
        let args = args![out, lse, qkv, batch, time, query, key_value, width, window, scale, documents];
        let grid = by_warps(sizes.query, parts, sizes)?;
        self.launch(kernel!(dtype, "attention_forward_any"), grid, &args)
    }

    /// [`Gpu::attention_forward`] by a kernel for Hopper.
    fn attention_forward_on_hopper(
        &self,
        kernel: &OnHopper,
        [out, lse, qkv]: [&Tensor; 3],
        sizes: Sizes,
        parts: Parts,
    ) -> Result<()> {
        let [time, query, key_value, width, window] = size_args(sizes);
        let batch = qkv.dims()[0];
        // Rows of a sequence do not run into the next one. Those of documents do, and the kernel sees to it.
        let rows = if parts.documents == Ptr::NONE { [time, batch] } else { [batch * time, 1] };
        let map = TensorMap::new(qkv.at(), [width, sizes.vectors(), rows[0], rows[1]], BOX)?;
        let grid = by_rows(kernel.queries, query, [parts.count, parts.longest], kernel.shared);
        let grid = Grid { threads: kernel.threads, ..grid };
        let args = args![out, lse, time, query, key_value, window, parts.documents];
        self.launch_with(kernel.forward[parts.kernel()], grid, map.words(), &args)
    }

    /// Like [`super::cpu::backward`], for all sequences, or for documents. `lse` and `delta` are f32 and have
    /// the same shape; `delta` is overwritten.
    ///
    /// # Errors
    /// As [`Gpu::attention_forward`].
    pub(crate) fn attention_backward(
        &self,
        [qkv_grad, delta, qkv, out, lse, grad]: [&Tensor; 6],
        sizes: Sizes,
        documents: Option<&OnGpu>,
    ) -> Result<()> {
        let (dtype, batch) = (qkv.dtype(), qkv.dims()[0]);
        let [time, query, key_value, width, window] = size_args(sizes);
        let parts = Parts::new(batch, sizes.time, documents);
        let documents = parts.documents;
        let args = args![delta, grad, out, parts.count, time, width, documents];
        let rows = by_rows(DELTA_ROWS, sizes.query, [parts.count.min(MOST_DEEP), parts.longest], 0);
        self.launch(kernel!(dtype, "attention_delta"), rows, &args)?;
        if let Some(fused) = fused(dtype, sizes) {
            let args = args![qkv_grad, qkv, grad, lse, delta, time, query, key_value, window, documents];
            let ([_, kv, q], shape) = (fused.shared, [parts.count, parts.longest]);
            let by_keys = by_rows(fused.keys, sizes.key_value, shape, kv);
            for names in fused.backward_kv {
                self.launch(names[parts.kernel()], by_keys, &args)?;
            }
            let by_queries = by_rows(fused.queries, sizes.query, shape, q);
            return self.launch(fused.backward_q[parts.kernel()], by_queries, &args);
        }
        let scale = sizes.scale();
        let args = args![
            qkv_grad, qkv, grad, lse, delta, batch, time, query, key_value, width, window, scale, documents,
        ];
        let by_keys = by_warps(sizes.key_value, parts, sizes)?;
        self.launch(kernel!(dtype, "attention_backward_kv_any"), by_keys, &args)?;
        let by_queries = by_warps(sizes.query, parts, sizes)?;
        self.launch(kernel!(dtype, "attention_backward_q_any"), by_queries, &args)
    }
}

/// The threads of a block, which are also the keys of a part: `PART` in `kernels/next.cu`.
const PART: usize = 256;

/// The query heads that a block works on at once, if several share keys.
const AT_ONCE: usize = 4;

/// The widest head: a block has a thread for every eight numbers.
const WIDEST: usize = 8 * PART;

/// The most bytes of the sums of parts. If many tokens follow many others, some of them go at a time.
const MOST_PARTIALS: usize = 64 << 20;

/// The keys and values of the tokens so far, on a GPU: `[room, 2 * key_value * width]`.
#[derive(Debug, Default)]
pub(crate) struct PastOnGpu(Option<Tensor>);

impl PastOnGpu {
    /// Keeps the keys and values of these rows. Their tokens come after the first `past` tokens. If there is
    /// no room, there will be twice as much.
    pub(crate) fn add(&mut self, gpu: &Gpu, past: usize, qkv: &Tensor, sizes: Sizes) -> Result<()> {
        let Sizes { time, query, width, .. } = sizes;
        let (kept, bytes) = (2 * sizes.key_value * width, qkv.dtype().bytes());
        let fits = |rows: &Tensor| rows.dims()[0] >= past + time && rows.place() == qkv.place();
        let rows = match self.0.take() {
            Some(rows) if fits(&rows) => rows,
            old => {
                let room = (past + time).next_power_of_two();
                let rows = Tensor::on_gpu(gpu, qkv.dtype(), &[room, kept])?;
                if let Some(old) = old.filter(|_| past > 0) {
                    gpu.copy(rows.at(), old.at(), past * kept * bytes)?;
                }
                rows
            }
        };
        let count = time * kept;
        let args =
            args![rows.at().offset(past * kept * bytes), qkv, count, sizes.vectors() * width, query * width];
        self.0 = Some(rows);
        let grid = Grid::each(count.div_ceil(8), PART as u32);
        gpu.launch(kernel!(qkv.dtype(), "attention_keep"), grid, &args)
    }

    /// Attention of the queries of these rows, whose keys and values have been added.
    ///
    /// # Errors
    /// When the heads are too wide, or the driver reports an error.
    pub(crate) fn attend(
        &self,
        gpu: &Gpu,
        out: &Tensor,
        qkv: &Tensor,
        past: usize,
        sizes: Sizes,
    ) -> Result<()> {
        if sizes.width > WIDEST {
            return Err(too_wide(sizes.width, WIDEST));
        }
        let of_token =
            sizes.query * (past + sizes.time).div_ceil(PART) * (sizes.width + 2) * size_of::<f32>();
        let at_once = (MOST_PARTIALS / of_token).max(1);
        for first in (0..sizes.time).step_by(at_once) {
            let time = at_once.min(sizes.time - first);
            let bytes = qkv.dtype().bytes() * first * sizes.width;
            let places = [out.at().offset(bytes * sizes.query), qkv.at().offset(bytes * sizes.vectors())];
            self.attend_some(gpu, qkv.dtype(), places, past + first, Sizes { time, ..sizes })?;
        }
        Ok(())
    }

    /// As [`PastOnGpu::attend`], for some tokens.
    fn attend_some(
        &self,
        gpu: &Gpu,
        dtype: DType,
        [out, qkv]: [Ptr; 2],
        past: usize,
        sizes: Sizes,
    ) -> Result<()> {
        let Sizes { time, query, key_value, width, window } = sizes;
        let kept = self.0.as_ref().expect("these rows have been added");
        let (window, scale) = (window.min(past + time), sizes.scale());
        // The parts that some of these tokens see.
        let first_part = (past + 1).saturating_sub(window) / PART;
        let parts = (past + time).div_ceil(PART) - first_part;
        let numbers = time * query * parts * (width + 2);
        let partials = (parts > 1).then(|| gpu.memory_of(size_of::<f32>() * numbers)).transpose()?;
        let at = partials.as_ref().map_or(Ptr::NONE, Memory::at);
        let args = args![out, at, qkv, kept, past, time, query, key_value, width, window, first_part, scale];
        let heads = if query == key_value { 1 } else { AT_ONCE };
        let shared = (heads + 8) * PART + heads * width.next_multiple_of(8);
        let grid = Grid {
            blocks: [time, parts, key_value].map(|blocks| blocks as u32),
            threads: PART as u32,
            shared: (size_of::<f32>() * shared) as u32,
        };
        gpu.launch(kernel!(dtype, "attention_next"), grid, &args)?;
        if partials.is_none() {
            return Ok(());
        }
        let grid = Grid {
            blocks: [time as u32, query as u32, 1],
            threads: PART as u32,
            shared: (size_of::<f32>() * 9 * PART) as u32,
        };
        let args = args![out, at, first_part, parts, query, width];
        gpu.launch(kernel!(dtype, "attention_join_parts"), grid, &args)
    }
}
