//! Causal self-attention.

pub(crate) mod bf16;
pub(crate) mod cpu;
pub(crate) mod cuda;
pub(crate) mod fused;

use std::rc::Rc;

use super::Heads;
use crate::cpu::real::{Real, in_format};
use crate::cuda::Gpu;
use crate::device::DType;
use crate::error::{Error, Result, check_positive};
use crate::layers::attention::bf16 as half_attention;
use crate::layers::attention::cpu as attention;
use crate::layers::attention::cpu::backward::Saved;
use crate::layers::attention::cpu::next::Past;
use crate::layers::attention::cpu::sizes::Sizes;
use crate::layers::attention::cuda::PastOnGpu;
use crate::shape::Shape;
use crate::shards::Team;
use crate::stage::borders::{Borders, OnGpu, Spans};
use crate::stage::kept::Kept;
use crate::stage::layer::Layer;
use crate::stage::{ForwardContext, WRITING};
use crate::tensor::Tensor;

/// Causal self-attention with several heads. Its input is `[batch, time, (query + 2 key_value) * width]`:
/// queries, keys and values of all [`Heads`] side by side. Its output is `[batch, time, query * width]`:
/// `softmax(q k^T / sqrt(width)) v` for each query head, over the keys that a query sees. Vaswani et al.,
/// "Attention is all you need" (2017); with shared keys and values, Ainslie et al., "GQA" (2023).
///
/// It works on blocks of query rows, so the scores of a whole head are never in memory at once. It keeps its
/// input, its output and one number for each row and query head.
#[derive(Debug)]
pub struct Attention {
    name: String,
    heads: Heads,
    window: Option<usize>,
    borders: Option<Borders>,
    /// The keys and values of the text that is being written, and how many of its tokens there are.
    past: Past,
    past_on_gpu: PastOnGpu,
    had: usize,
}

impl Attention {
    /// A layer of `heads` heads that are `dim` numbers wide together. Each has its own keys and values, and a
    /// query sees all keys up to its own. Its input is `[batch, time, 3 * dim]`, its output
    /// `[batch, time, dim]`.
    ///
    /// # Errors
    /// When `dim` is not divisible by `heads`.
    pub fn new(name: &str, dim: usize, heads: usize) -> Result<Self> {
        if dim == 0 || heads == 0 || !dim.is_multiple_of(heads) {
            let text = format!("dim {dim} is not divisible by heads {heads}: choose heads that divide dim");
            return Err(Error::new(text).at(name));
        }
        let heads = Heads { query: heads, key_value: heads, width: dim / heads };
        Self::grouped(name, heads, None)
    }

    /// A layer whose query heads share keys and values in groups. With a window, the query at position `t`
    /// sees the keys at `t - window + 1 ..= t`, as in Hugging Face's Mistral; without one, all up to its own.
    /// Beltagy et al., "Longformer" (2020). The blocks of keys outside of the window cost nothing.
    ///
    /// # Errors
    /// When a number of `heads` is 0, `query` is not a multiple of `key_value`, or the window is 0.
    pub fn grouped(name: &str, heads: Heads, window: Option<usize>) -> Result<Self> {
        let window_is_right = window.map_or(Ok(()), |window| check_positive(&[("the window", window)]));
        heads.check().and(window_is_right).map_err(|error| error.at(name))?;
        Ok(Self {
            name: name.to_owned(),
            heads,
            window,
            borders: None,
            past: Past::default(),
            past_on_gpu: PastOnGpu::default(),
            had: 0,
        })
    }

    /// The starts of a micro-batch's documents, if they are kept apart.
    fn starts(&self, ctx: ForwardContext, shape: &Shape) -> Result<Option<Tensor>> {
        let rows = [shape.dims()[0], shape.dims()[1]];
        self.borders.as_ref().map_or(Ok(None), |borders| borders.of(ctx, rows))
    }

    /// As [`Attention::starts`], on a GPU.
    fn documents(&self, gpu: &Gpu, ctx: ForwardContext, shape: &Shape) -> Result<Option<Rc<OnGpu>>> {
        let rows = [shape.dims()[0], shape.dims()[1]];
        self.borders.as_ref().map_or(Ok(None), |borders| borders.on_gpu(gpu, ctx, rows))
    }

    /// The forward pass. The documents of the rows begin at `starts`.
    fn attend(&self, ctx: ForwardContext, input: Tensor, starts: Option<&Tensor>) -> Result<(Tensor, Kept)> {
        let shape = self.output_shape(input.shape())?;
        let mut output = input.beside(shape.dims())?;
        let sums = [shape.dims()[0], self.heads.query, shape.dims()[1]];
        let mut lse = input.f32_beside(&sums)?;
        let sizes = self.sizes(&shape);
        let spans = Spans { time: sizes.time, starts: starts.map(Tensor::ids) };
        match (input.gpu()?, input.dtype()) {
            (Some(gpu), _) => {
                let documents = match starts {
                    Some(_) => self.documents(&gpu, ctx, &shape)?,
                    None => None,
                };
                gpu.attention_forward([&output, &lse, &input], sizes, documents.as_deref())?;
            }
            (None, DType::F32) => {
                attention::forward(output.f32_mut(), lse.f32_mut(), input.f32(), sizes, spans);
            }
            (None, DType::Bf16) => {
                half_attention::forward(output.bf16_mut(), lse.f32_mut(), input.bf16(), sizes, spans);
            }
        }
        Ok((output.clone(), Kept::new(ctx, [input, output, lse])))
    }

    fn sizes(&self, shape: &Shape) -> Sizes {
        Sizes {
            time: shape.dims()[1],
            query: self.heads.query,
            key_value: self.heads.key_value,
            width: self.heads.width,
            window: self.window.unwrap_or(usize::MAX),
        }
    }
}

/// What backward reads on the CPU.
fn saved_by<'a, N: Real>(
    input: &'a Tensor,
    output: &'a Tensor,
    lse: &'a Tensor,
    grad: &'a Tensor,
) -> Saved<'a, N> {
    Saved { qkv: input.numbers(), out: output.numbers(), lse: lse.f32(), grad: grad.numbers() }
}

impl Layer for Attention {
    fn name(&self) -> &str {
        &self.name
    }

    fn runs_on_gpus(&self) -> bool {
        true
    }

    fn output_shape(&self, input: &Shape) -> Result<Shape> {
        self.heads.check_rows(input)?;
        Ok(input.with_last(self.heads.query * self.heads.width))
    }

    /// Its heads are this shard's.
    fn join(&mut self, _team: &Team) -> Result<()> {
        Ok(())
    }

    fn keep_apart(&mut self, borders: &Borders) -> Result<()> {
        self.borders = Some(borders.clone());
        Ok(())
    }

    fn forward(&mut self, ctx: ForwardContext, input: Tensor) -> Result<(Tensor, Kept)> {
        let starts = self.starts(ctx, &self.output_shape(input.shape())?)?;
        self.attend(ctx, input, starts.as_ref())
    }

    fn forward_next(&mut self, past: usize, input: Tensor) -> Result<Tensor> {
        let shape = self.output_shape(input.shape())?;
        if shape.dims()[0] != 1 {
            return Err(Error::shape(format!("f32[1, time, {}]", self.heads.row()), input.shape()));
        }
        if past > self.had {
            return Err(Error::new(format!(
                "tokens cannot follow {past} others of the text: it has had {}",
                self.had
            )));
        }
        let sizes = self.sizes(&shape);
        let gpu = input.gpu()?;
        match &gpu {
            Some(gpu) => self.past_on_gpu.add(gpu, past, &input, sizes)?,
            None => in_format!(input.dtype(), N => self.past.add(past, input.numbers::<N>(), sizes)),
        }
        self.had = past + sizes.time;
        if past == 0 {
            return Ok(self.attend(WRITING, input, None)?.0);
        }
        let mut output = input.beside(shape.dims())?;
        match gpu {
            Some(gpu) => self.past_on_gpu.attend(&gpu, &output, &input, past, sizes)?,
            None => in_format!(input.dtype(), N => {
                self.past.attend(output.numbers_mut::<N>(), input.numbers::<N>(), past, sizes);
            }),
        }
        Ok(output)
    }

    fn backward_input(&mut self, saved: Kept, grad: Tensor) -> Result<(Option<Tensor>, Kept)> {
        let ctx = saved.ctx;
        let [input, output, lse] = saved.into_tensors();
        let mut input_grad = input.beside(input.dims())?;
        let (sizes, starts) = (self.sizes(input.shape()), self.starts(ctx, input.shape())?);
        let spans = Spans { time: sizes.time, starts: starts.as_ref().map(Tensor::ids) };
        match (input.gpu()?, input.dtype()) {
            (Some(gpu), _) => {
                let delta = lse.beside(lse.dims())?;
                let documents = self.documents(&gpu, ctx, input.shape())?;
                let tensors = [&input_grad, &delta, &input, &output, &lse, &grad];
                gpu.attention_backward(tensors, sizes, documents.as_deref())?;
            }
            (None, DType::F32) => {
                let saved = saved_by(&input, &output, &lse, &grad);
                attention::backward(input_grad.f32_mut(), saved, sizes, spans);
            }
            (None, DType::Bf16) => {
                let saved = saved_by(&input, &output, &lse, &grad);
                half_attention::backward(input_grad.bf16_mut(), saved, sizes, spans);
            }
        }
        Ok((Some(input_grad), Kept::new(ctx, [])))
    }
}
