//! Kernels that work on single numbers.

use smallvec::SmallVec;

use super::launch::{Arg, kernel};
use super::{Gpu, Grid, Ptr};
use crate::device::DType;
use crate::error::Result;

/// The threads of a block.
const THREADS: u32 = 256;

impl Gpu {
    /// Launches a kernel whose threads work on eight numbers each, out of `count` at each of the addresses.
    pub(crate) fn each<const N: usize>(&self, name: &'static str, at: [Ptr; N], count: usize) -> Result<()> {
        let at = at.into_iter().map(Arg::from);
        let args: SmallVec<[Arg; 4]> = at.chain([count.into()]).collect();
        self.launch(name, Grid::each(count.div_ceil(8), THREADS), &args)
    }

    /// `out = a + b`, each `count` numbers. `out` may be `a` or `b`.
    pub(crate) fn add(&self, dtype: DType, out: Ptr, a: Ptr, b: Ptr, count: usize) -> Result<()> {
        self.each(kernel!(dtype, "add"), [out, a, b], count)
    }

    /// `out = input`, rounded from `f32` to `bf16`.
    pub(crate) fn cast_to_bf16(&self, out: Ptr, input: Ptr, count: usize) -> Result<()> {
        self.each("cast_f32_to_bf16", [out, input], count)
    }

    /// `out = input`, from `bf16` to `f32`.
    pub(crate) fn cast_to_f32(&self, out: Ptr, input: Ptr, count: usize) -> Result<()> {
        self.each("cast_bf16_to_f32", [out, input], count)
    }
}
