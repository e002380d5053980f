//! What candle keeps of a forward pass, and the gradients that it makes of it.

use std::collections::HashSet;

use candle_core::backprop::GradStore;
use candle_core::{CpuStorage, CustomOp1, Layout, Shape, Tensor, Var};

use crate::error::Result;

/// A forward pass on candle's tape. It lives as long as its output does.
pub(crate) struct Tape {
    pub(crate) output: Tensor,
    /// The input, if its gradient is wanted.
    pub(crate) input: Option<Var>,
}

impl Tape {
    /// The bytes that the tape holds, without these weights. What several tensors share counts once.
    pub(crate) fn bytes<'a>(&self, weights: impl Iterator<Item = &'a Var>) -> u64 {
        let mut seen: HashSet<usize> = weights.map(|var| address(var)).collect();
        let nodes = self.output.sorted_nodes().into_iter();
        let new = nodes.filter(|node| seen.insert(address(node)));
        let size = |node: &Tensor| (node.elem_count() * node.dtype().size_in_bytes()) as u64;
        new.map(size).sum()
    }

    /// All gradients for this gradient of the output.
    pub(crate) fn backward(&self, grad: Tensor) -> Result<GradStore> {
        Ok(self.output.apply_op1(Seed(grad))?.backward()?)
    }
}

/// The identity of the memory of a tensor's numbers.
fn address(tensor: &Tensor) -> usize {
    std::ptr::from_ref(&*tensor.storage_and_layout().0).addr()
}

/// A scalar whose gradient by its argument is this tensor. With it, candle's backward starts at the output's
/// gradient. It has no argument for one.
struct Seed(Tensor);

impl CustomOp1 for Seed {
    fn name(&self) -> &'static str {
        "seed"
    }

    fn cpu_fwd(&self, _: &CpuStorage, _: &Layout) -> candle_core::Result<(CpuStorage, Shape)> {
        Ok((CpuStorage::F32(vec![0.0]), Shape::from(())))
    }

    fn bwd(&self, _: &Tensor, _: &Tensor, _: &Tensor) -> candle_core::Result<Option<Tensor>> {
        Ok(Some(self.0.clone()))
    }
}
