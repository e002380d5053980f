//! Attention of the next tokens of a text, which see the keys and values of all tokens before them.

use crate::cuda::launch::{Arg, kernel};
use crate::cuda::{Gpu, Grid};
use crate::error::{DeviceError, Result};
use crate::layers::attention::cpu::sizes::Sizes;
use crate::tensor::Tensor;

/// The threads of a block that copies.
const THREADS: u32 = 256;

/// The warps of a block that computes a query head of a token.
const WARPS: usize = 8;

/// The shared memory of a block in bytes.
const SHARED: usize = 48 << 10;

/// The keys and values of the tokens so far, on a GPU: `[room, 2 * key_value * width]`.
#[derive(Debug, Default)]
pub(crate) struct PastOnGpu(Option<Tensor>);

impl PastOnGpu {
    /// Keeps the keys and values of these rows. Their tokens come after the first `past` tokens. If there is
    /// no room, there will be twice as much.
    pub(crate) fn add(&mut self, gpu: &Gpu, past: usize, qkv: &Tensor, sizes: Sizes) -> Result<()> {
        let Sizes {
            time, query, width, ..
        } = sizes;
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
        let args = [
            rows.at().offset(past * kept * bytes).into(),
            qkv.at().into(),
            (count as u64).into(),
            Arg::from((sizes.vectors() * width) as u32),
            Arg::from((query * width) as u32),
        ];
        self.0 = Some(rows);
        let grid = Grid::each(count, THREADS);
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
        let Sizes {
            time,
            query,
            key_value,
            width,
            window,
        } = sizes;
        let shared = 4 * width * (1 + WARPS) + 8 * WARPS;
        if shared > SHARED {
            let most = (SHARED - 8 * WARPS) / (4 * (1 + WARPS));
            return Err(DeviceError::WideHeads { width, most }.into());
        }
        let kept = self.0.as_ref().expect("these rows have been added");
        let window = window.min(past + time);
        let [past, time_arg, query_arg, key_value, width, window] =
            [past, time, query, key_value, width, window].map(|size| Arg::from(size as u32));
        let args = [
            out.at().into(),
            qkv.at().into(),
            kept.at().into(),
            past,
            time_arg,
            query_arg,
            key_value,
            width,
            window,
            sizes.scale().into(),
        ];
        let grid = Grid {
            blocks: [time as u32, query as u32, 1],
            threads: 32 * WARPS as u32,
            shared: shared as u32,
        };
        gpu.launch(kernel!(qkv.dtype(), "attention_next"), grid, &args)
    }
}
