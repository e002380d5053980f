//! Sums by a binary tree.

use crate::error::Result;
use crate::tensor::Tensor;

/// Adds the tensors to the first of them, by the tree. Their number is a power of two.
pub(crate) fn add_by_tree(parts: &mut [Tensor]) -> Result<()> {
    let mut apart = 1;
    while apart < parts.len() {
        for pair in parts.chunks_exact_mut(2 * apart) {
            let (earlier, later) = pair.split_at_mut(apart);
            earlier[0].add_apart(&later[0])?;
        }
        apart *= 2;
    }
    Ok(())
}
