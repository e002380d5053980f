//! Other dimensions for the same numbers: any, or two.

use crate::error::{Error, Result, check_numbers};
use crate::shape::{MAX_DIMS, Shape};
use crate::shards::Team;
use crate::stage::ForwardContext;
use crate::stage::kept::Kept;
use crate::stage::layer::Layer;
use crate::tensor::Tensor;

/// `[batch, ..]` to `[batch, dims..]`, with the same numbers in the same order: the opposite of
/// [`Flatten`](super::Flatten). It copies nothing and keeps only the input's shape.
#[derive(Debug)]
pub struct Reshape {
    name: String,
    dims: Vec<usize>,
}

impl Reshape {
    /// A layer of this name, with all dimensions of its output but the outermost one.
    pub fn new(name: &str, dims: &[usize]) -> Self {
        Self { name: name.to_owned(), dims: dims.to_vec() }
    }
}

impl Layer for Reshape {
    fn name(&self) -> &str {
        &self.name
    }

    fn runs_on_gpus(&self) -> bool {
        true
    }

    fn output_shape(&self, input: &Shape) -> Result<Shape> {
        check_numbers(input)?;
        let count: usize = self.dims.iter().product();
        match input.dims() {
            [batch, inner @ ..] if inner.iter().product::<usize>() == count && self.dims.len() < MAX_DIMS => {
                let mut dims = [*batch; MAX_DIMS];
                dims[1..=self.dims.len()].copy_from_slice(&self.dims);
                Ok(Shape::f32(&dims[..=self.dims.len()]))
            }
            _ => {
                let most = MAX_DIMS - 1;
                let expected =
                    format!("f32[batch, ..] for {:?}: {count} numbers, {most} dimensions at most", self.dims);
                Err(Error::shape(expected, input))
            }
        }
    }

    fn forward(&mut self, ctx: ForwardContext, input: Tensor) -> Result<(Tensor, Kept)> {
        let shape = self.output_shape(input.shape())?;
        reshaped(ctx, input, &shape)
    }

    fn backward_input(&mut self, saved: Kept, grad: Tensor) -> Result<(Option<Tensor>, Kept)> {
        restored(saved, grad)
    }
}

/// The same numbers in another shape, of the same batch; and the shape that they had.
fn reshaped(ctx: ForwardContext, input: Tensor, shape: &Shape) -> Result<(Tensor, Kept)> {
    let inner = input.without_rows();
    Ok((input.reshape(shape.dims())?, Kept::new(ctx, [inner])))
}

/// The gradient in the shape that the input had.
fn restored(saved: Kept, grad: Tensor) -> Result<(Option<Tensor>, Kept)> {
    let ctx = saved.ctx;
    let [inner] = saved.into_tensors();
    let shape = inner.shape().with_first(grad.dims()[0]);
    Ok((Some(grad.reshape(shape.dims())?), Kept::new(ctx, [])))
}

/// `[batch, ..]` to `[batch, n]`. It copies nothing and keeps only the input's shape.
#[derive(Debug)]
pub struct Flatten {
    name: String,
}

impl Flatten {
    /// A layer of this name.
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned() }
    }
}

impl Layer for Flatten {
    fn name(&self) -> &str {
        &self.name
    }

    /// It treats each row alone.
    fn join(&mut self, _team: &Team) -> Result<()> {
        Ok(())
    }

    fn runs_on_gpus(&self) -> bool {
        true
    }

    fn output_shape(&self, input: &Shape) -> Result<Shape> {
        check_numbers(input)?;
        match input.dims() {
            [] => Err(Error::shape("f32[batch, ..]", input)),
            [batch, inner @ ..] => Ok(Shape::f32(&[*batch, inner.iter().product()])),
        }
    }

    fn forward(&mut self, ctx: ForwardContext, input: Tensor) -> Result<(Tensor, Kept)> {
        let shape = self.output_shape(input.shape())?;
        reshaped(ctx, input, &shape)
    }

    fn backward_input(&mut self, saved: Kept, grad: Tensor) -> Result<(Option<Tensor>, Kept)> {
        restored(saved, grad)
    }
}
