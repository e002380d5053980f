//! What memory allows a layer: plain loops that move as many bytes, of the same tensors, in the same caches.

use multiversion::multiversion;
use pipewright_stages::{ForwardContext, Kept, Layer, Result, Shape, Tensor};

use crate::own;

/// A layer that only moves bytes.
#[derive(Debug)]
pub(crate) struct Plain {
    /// Whether both passes change their tensor in place. Otherwise forward copies its input and keeps it, and
    /// backward changes the gradient with its help.
    pub(crate) in_place: bool,
    /// Of how many numbers in a row, from the first on, a change is made.
    pub(crate) changed: usize,
}

impl Layer for Plain {
    fn name(&self) -> &str {
        "plain"
    }

    fn output_shape(&self, input: &Shape) -> Result<Shape> {
        Ok(*input)
    }

    fn forward(&mut self, ctx: ForwardContext, mut input: Tensor) -> Result<(Tensor, Kept)> {
        if self.in_place {
            let [row, changed] = self.bytes(&input);
            change(input.as_bytes_mut(), row, changed);
            return Ok((input, Kept::new(ctx, [])));
        }
        Ok((own(&input), Kept::new(ctx, [input])))
    }

    fn backward_input(&mut self, saved: Kept, mut grad: Tensor) -> Result<(Option<Tensor>, Kept)> {
        let ctx = saved.ctx;
        let [row, changed] = self.bytes(&grad);
        if self.in_place {
            change(grad.as_bytes_mut(), row, changed);
        } else {
            let [input] = saved.into_tensors();
            change_with(grad.as_bytes_mut(), input.as_bytes(), row, changed);
        }
        Ok((Some(grad), Kept::new(ctx, [])))
    }
}

impl Plain {
    /// The bytes of a row, and how many of them are changed.
    fn bytes(&self, tensor: &Tensor) -> [usize; 2] {
        [tensor.shape().last(), self.changed].map(|count| count * tensor.place().dtype.bytes())
    }
}

#[multiversion(targets = "simd")]
fn change(rows: &mut [u8], row: usize, changed: usize) {
    for row in rows.chunks_exact_mut(row) {
        row[..changed].iter_mut().for_each(|byte| *byte ^= 1);
    }
}

#[multiversion(targets = "simd")]
fn change_with(rows: &mut [u8], others: &[u8], row: usize, changed: usize) {
    for (row, other) in rows.chunks_exact_mut(row).zip(others.chunks_exact(row)) {
        let bytes = row[..changed].iter_mut().zip(&other[..changed]);
        bytes.for_each(|(byte, other)| *byte ^= other);
    }
}
