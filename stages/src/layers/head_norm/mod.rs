//! Root mean square normalisation of heads.

pub(crate) mod cpu;
pub(crate) mod cuda;

use super::Heads;
use crate::cpu::real::in_format;
use crate::cuda::launch::{args, kernel};
use crate::cuda::{Gpu, Ptr};
use crate::device::DType;
use crate::error::{Error, Result, check_rows};
use crate::layers::head_norm::cpu as head_norm;
use crate::layers::head_norm::cpu::Tokens;
use crate::layers::head_norm::cuda::HeadRows;
use crate::layers::norm::add_grads;
use crate::parameter::Parameter;
use crate::parameter::init::Init;
use crate::shape::Shape;
use crate::shards::{Division, Team};
use crate::stage::ForwardContext;
use crate::stage::borders::Borders;
use crate::stage::kept::Kept;
use crate::stage::layer::Layer;
use crate::tensor::Tensor;

/// Normalises each head of queries and keys, as [`RmsNorm`](super::RmsNorm) does rows, before attention.
/// Values pass. `f32[.., (query + 2 key_value) width]` to the same: queries, keys and values side by side.
/// As in Qwen-3; Henry, Dachapally, Pawar and Chen, "Query-key normalization for transformers" (2020), have
/// another norm there.
///
/// Parameters: the gains `{name}.q_norm.weight` and `{name}.k_norm.weight`, each `[width]`; they start at 1.
/// It keeps its input and two numbers for each head of queries and keys.
#[derive(Debug)]
pub struct HeadNorm {
    name: String,
    heads: Heads,
    epsilon: f32,
    query: Parameter,
    key: Parameter,
    /// The keys before each group of heads, and all keys.
    groups: Vec<usize>,
}

impl HeadNorm {
    /// A layer for these heads. `epsilon` is added to the mean square.
    pub fn new(name: &str, heads: Heads, epsilon: f32) -> Self {
        let gain = |which| Parameter::new(format!("{name}.{which}.weight"), &[heads.width], Init::Ones, 0);
        let groups = vec![0, heads.key_value];
        Self { name: name.to_owned(), heads, epsilon, query: gain("q_norm"), key: gain("k_norm"), groups }
    }

    /// The same layer. Its heads are those of one shard. `division` is the division of all key/value heads.
    /// The gradients of its gains are added up in groups of heads.
    #[must_use]
    pub fn divided(mut self, division: &Division) -> Self {
        let groups = division.groups();
        if division.all_groups() == 1 {
            return self;
        }
        self.groups = [0].into_iter().chain(groups.iter().map(|ranges| ranges[0].end)).collect();
        [&mut self.query, &mut self.key].into_iter().for_each(|gain| gain.add_up_in(groups.len()));
        self
    }

    fn is_frozen(&self) -> bool {
        self.query.is_frozen() && self.key.is_frozen()
    }

    /// What backward-weight needs.
    fn pending(&self, ctx: ForwardContext, weight_grads: Tensor) -> Kept {
        Kept::new(ctx, (!self.is_frozen()).then_some(weight_grads))
    }

    fn rows(&self, input: &Tensor) -> HeadRows {
        HeadRows {
            tokens: input.shape().rows(),
            queries: self.heads.query,
            keys: self.heads.key_value,
            width: self.heads.width,
        }
    }

    /// Turns the gradient into the input gradient, on a GPU. Returns the gradients of the gains. Each group
    /// of heads is treated as by a shard that has no other heads.
    fn backward_on(&self, gpu: &Gpu, grad: &mut Tensor, input: &Tensor, stats: &Tensor) -> Result<Tensor> {
        let groups = self.groups.len() - 1;
        let (all, width, dtype) = (self.rows(input), self.heads.width, grad.dtype());
        let weight_grads = Tensor::on_gpu(gpu, DType::F32, &[2 * groups, width])?;
        let at = grad.at_mut(gpu)?;
        if groups == 1 {
            self.backward_heads(gpu, all, dtype, [at, input.at(), stats.at()], weight_grads.at())?;
            return Ok(weight_grads);
        }
        let each = all.queries / all.keys;
        for (group, keys) in self.groups.windows(2).enumerate() {
            let (queries, keys) = (each * keys[0]..each * keys[1], keys[0]..keys[1]);
            let after = |heads: usize| keys.start + heads..keys.end + heads;
            let heads = [queries.clone(), after(all.queries), after(all.queries + all.keys)];
            let numbers = heads.clone().map(|heads| heads.start * width..heads.end * width);
            let rows = HeadRows { queries: queries.len(), keys: keys.len(), ..all };
            let take = |from: Ptr| {
                let part = gpu.memory_of(all.tokens * rows.row() * dtype.bytes())?;
                gpu.gather_columns(dtype, part.at(), (from, all.row()), all.tokens, &numbers)?;
                Ok::<_, Error>(part)
            };
            let (grads, inputs) = (take(at)?, take(input.at())?);
            let of_stats = [&heads[0], &heads[1]].map(|heads| 2 * heads.start..2 * heads.end);
            let scales = gpu.memory_of(all.tokens * 2 * (rows.queries + rows.keys) * size_of::<f32>())?;
            let from = (stats.at(), 2 * (all.queries + all.keys));
            gpu.gather_columns(DType::F32, scales.at(), from, all.tokens, &of_stats)?;
            let sums = weight_grads.at().offset(2 * group * width * size_of::<f32>());
            self.backward_heads(gpu, rows, dtype, [grads.at(), inputs.at(), scales.at()], sums)?;
            gpu.scatter_columns(dtype, (at, all.row()), grads.at(), all.tokens, &numbers)?;
        }
        Ok(weight_grads)
    }

    /// [`HeadNorm::backward_on`] of all heads of these rows: of the gradient, the input, and what forward
    /// kept.
    fn backward_heads(
        &self,
        gpu: &Gpu,
        rows: HeadRows,
        dtype: DType,
        [grad, input, stats]: [Ptr; 3],
        weight_grads: Ptr,
    ) -> Result<()> {
        let ([query, key], [tokens, queries, keys, width, lanes]) = (self.at(), rows.sizes());
        let grid = rows.summing_grid(gpu);
        let blocks = grid.blocks[0] as usize;
        let partials = gpu.memory_of(blocks * 2 * width * size_of::<f32>())?;
        let args = args![grad, &partials, input, stats, query, key, tokens, queries, keys, width, lanes];
        gpu.launch(kernel!(dtype, "head_norm_backward"), grid, &args)?;
        gpu.sum_rows(weight_grads, partials.at(), blocks, 2 * width)
    }

    /// The addresses of the gains on the GPU.
    fn at(&self) -> [Ptr; 2] {
        [&self.query, &self.key].map(|gain| gain.weights().value())
    }

    fn tokens(&self) -> Tokens<'_> {
        Tokens {
            heads: [self.heads.query, self.heads.key_value],
            groups: &self.groups,
            gains: [&self.query.value, &self.key.value],
            width: self.heads.row(),
        }
    }
}

impl Layer for HeadNorm {
    fn name(&self) -> &str {
        &self.name
    }

    fn runs_on_gpus(&self) -> bool {
        true
    }

    fn output_shape(&self, input: &Shape) -> Result<Shape> {
        check_rows(input, self.heads.row())?;
        Ok(*input)
    }

    /// Its heads are this shard's.
    fn join(&mut self, _team: &Team) -> Result<()> {
        Ok(())
    }

    /// It treats each row alone.
    fn keep_apart(&mut self, _borders: &Borders) -> Result<()> {
        Ok(())
    }

    fn forward(&mut self, ctx: ForwardContext, input: Tensor) -> Result<(Tensor, Kept)> {
        let shape = self.output_shape(input.shape())?;
        let mut output = input.beside(shape.dims())?;
        let heads = self.heads.query + self.heads.key_value;
        let sizes = [shape.rows(), heads, 2];
        let mut stats = input.f32_beside(&sizes)?;
        if let Some(gpu) = input.gpu()? {
            let (rows, [query, key], epsilon) = (self.rows(&input), self.at(), self.epsilon);
            let [tokens, queries, keys, width, lanes] = rows.sizes();
            let args =
                args![&output, &stats, &input, query, key, tokens, queries, keys, width, lanes, epsilon];
            gpu.launch(kernel!(input.dtype(), "head_norm_forward"), rows.grid(), &args)?;
            return Ok((output, Kept::new(ctx, [input, stats])));
        }
        in_format!(input.dtype(), N => {
            let (output, from) = (output.numbers_mut::<N>(), input.numbers());
            head_norm::forward(output, stats.f32_mut(), from, self.tokens(), self.epsilon);
        });
        Ok((output, Kept::new(ctx, [input, stats])))
    }

    fn backward_input(&mut self, saved: Kept, mut grad: Tensor) -> Result<(Option<Tensor>, Kept)> {
        let ctx = saved.ctx;
        let [input, stats] = saved.into_tensors();
        if let Some(gpu) = grad.gpu()? {
            let weight_grads = self.backward_on(&gpu, &mut grad, &input, &stats)?;
            return Ok((Some(grad), self.pending(ctx, weight_grads)));
        }
        let mut weight_grads = Tensor::zeros(&[2 * (self.groups.len() - 1), self.heads.width]);
        let gain_grads = weight_grads.f32_mut();
        in_format!(grad.dtype(), N => {
            let (grad, input) = (grad.numbers_mut::<N>(), input.numbers());
            head_norm::backward(grad, input, stats.f32(), self.tokens(), gain_grads);
        });
        Ok((Some(grad), self.pending(ctx, weight_grads)))
    }

    fn backward_weight(&mut self, pending: Kept) -> Result<()> {
        add_grads([Some(&mut self.query), Some(&mut self.key)], pending)
    }

    fn visit_parameters<'a>(&'a mut self, visit: &mut dyn FnMut(&'a mut Parameter)) {
        visit(&mut self.query);
        visit(&mut self.key);
    }
}
