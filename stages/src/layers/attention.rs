//! Causal multi-head self-attention.

use crate::cpu::attention::{self, Saved, Sizes};
use crate::cpu::real::in_format;
use crate::device::DType;
use crate::error::{Error, Result, SettingError};
use crate::kept::Kept;
use crate::layer::Layer;
use crate::shape::{Kind, Shape};
use crate::stage::ForwardContext;
use crate::tensor::Tensor;

/// Causal multi-head self-attention. Its input is `[batch, time, 3 * dim]`: queries, keys and values side by
/// side. Its output is `[batch, time, dim]`. Vaswani et al., "Attention is all you need" (2017).
///
/// It works on blocks of query rows, so the scores of a whole head are never in memory at once. It keeps its
/// input, its output and one number for each row and head.
#[derive(Debug)]
pub struct Attention {
    name: String,
    dim: usize,
    heads: usize,
}

impl Attention {
    /// A layer of `heads` heads that are `dim` numbers wide together.
    ///
    /// # Errors
    /// When `dim` is not divisible by `heads`.
    pub fn new(name: &str, dim: usize, heads: usize) -> Result<Self> {
        if dim == 0 || heads == 0 || !dim.is_multiple_of(heads) {
            return Err(Error::from(SettingError::Heads { dim, heads }).at(name));
        }
        Ok(Self {
            name: name.to_owned(),
            dim,
            heads,
        })
    }

    fn sizes(&self, shape: &Shape) -> Sizes {
        Sizes {
            time: shape.dims()[1],
            heads: self.heads,
            dim: self.dim,
        }
    }
}

impl Layer for Attention {
    fn name(&self) -> &str {
        &self.name
    }

    fn runs_on_gpus(&self) -> bool {
        true
    }

    fn output_shape(&self, input: &Shape) -> Result<Shape> {
        let rows = input.dims().len() == 3 && input.dims()[1] > 0;
        if input.kind() == Kind::F32 && rows && input.last() == 3 * self.dim {
            return Ok(input.with_last(self.dim));
        }
        Err(Error::shape(format!("f32[batch, time, {}]", 3 * self.dim), input))
    }

    fn forward(&mut self, ctx: ForwardContext, input: Tensor) -> Result<(Tensor, Kept)> {
        let shape = self.output_shape(input.shape())?;
        let mut output = input.beside(shape.dims())?;
        let sums = [shape.dims()[0], self.heads, shape.dims()[1]];
        let lse = match input.gpu()? {
            Some(gpu) => {
                let lse = Tensor::on_gpu(&gpu, DType::F32, &sums)?;
                let places = [output.at(), lse.at(), input.at()];
                gpu.attention_forward(input.dtype(), places, shape.dims()[0], self.sizes(&shape))?;
                lse
            }
            None => {
                let mut lse = Tensor::on_host(&sums)?;
                let sizes = self.sizes(&shape);
                in_format!(input.dtype(), N => {
                    let (output, input) = (output.numbers_mut::<N>(), input.numbers::<N>());
                    attention::forward(output, lse.f32_mut(), input, sizes);
                });
                lse
            }
        };
        Ok((output.clone(), Kept::new(ctx, [input, output, lse])))
    }

    fn backward_input(&mut self, saved: Kept, grad: Tensor) -> Result<(Option<Tensor>, Kept)> {
        let ctx = saved.ctx;
        let [input, output, lse] = saved.into_tensors();
        let mut input_grad = input.beside(input.dims())?;
        if let Some(gpu) = input.gpu()? {
            let delta = Tensor::on_gpu(&gpu, DType::F32, lse.dims())?;
            let places = [&input_grad, &delta, &input, &output, &lse, &grad].map(Tensor::at);
            gpu.attention_backward(input.dtype(), places, input.dims()[0], self.sizes(input.shape()))?;
            return Ok((Some(input_grad), Kept::new(ctx, [])));
        }
        in_format!(input.dtype(), N => {
            let saved = Saved {
                qkv: input.numbers::<N>(),
                out: output.numbers(),
                lse: lse.f32(),
                grad: grad.numbers(),
            };
            attention::backward(input_grad.numbers_mut(), saved, self.sizes(input.shape()));
        });
        Ok((Some(input_grad), Kept::new(ctx, [])))
    }
}
