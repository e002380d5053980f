//! Dropout.

use crate::cuda::launch::kernel;
use crate::cuda::{Gpu, Grid, Ptr};
use crate::device::DType;
use crate::error::Result;

impl Gpu {
    /// Like [`crate::layers::dropout::cpu::dropout`], with the same random numbers.
    pub(crate) fn dropout(
        &self,
        dtype: DType,
        numbers: Ptr,
        count: usize,
        rate: f32,
        key: [u32; 2],
        moment: [u32; 3],
    ) -> Result<()> {
        let scale = 1.0 / (1.0 - rate);
        let args = [
            numbers.into(),
            (count as u64).into(),
            rate.into(),
            scale.into(),
            key[0].into(),
            key[1].into(),
            moment[0].into(),
            moment[1].into(),
            moment[2].into(),
        ];
        let grid = Grid::each(count.div_ceil(64) * 16, 256);
        self.launch(kernel!(dtype, "dropout"), grid, &args)
    }
}
