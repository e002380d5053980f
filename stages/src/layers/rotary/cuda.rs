//! Rotary position embedding.

use crate::cuda::launch::kernel;
use crate::cuda::{Gpu, Grid, Ptr};
use crate::device::DType;
use crate::error::Result;
use crate::layers::rotary::cpu::Turn;

/// The threads of a block.
const THREADS: u32 = 256;

impl Gpu {
    /// Like [`crate::layers::rotary::cpu::turn`], for `count` numbers. The table is f32.
    pub(crate) fn rotary(
        &self,
        dtype: DType,
        [numbers, table]: [Ptr; 2],
        count: usize,
        turn: Turn,
    ) -> Result<()> {
        let pairs = count / turn.row * (turn.turned / 2);
        let sizes = [turn.time, turn.row, turn.turned, turn.width];
        let [time, row, turned, width] = sizes.map(|size| (size as u32).into());
        let in_pairs = u32::from(turn.in_pairs).into();
        let sign = if turn.is_back { -1.0 } else { 1.0_f32 };
        let args = [
            numbers.into(),
            table.into(),
            (pairs as u64).into(),
            time,
            row,
            turned,
            width,
            in_pairs,
            sign.into(),
        ];
        self.launch(kernel!(dtype, "rotary"), Grid::each(pairs, THREADS), &args)
    }
}
