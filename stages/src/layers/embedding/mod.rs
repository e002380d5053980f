//! Token and position embedding.

pub(crate) mod cuda;

use std::ops::Range;
use std::rc::Rc;

use smallvec::SmallVec;

use crate::cpu::elementwise::{add, add_into};
use crate::cpu::parts::{By, cut};
use crate::cpu::real::{Real, convert, in_format};
use crate::cuda::launch::{args, kernel};
use crate::cuda::{Gpu, Grid, Ptr};
use crate::device::DType;
use crate::error::{Error, Result, check_ids};
use crate::layers::embedding::cuda::ByToken;
use crate::parameter::Parameter;
use crate::parameter::init::Init;
use crate::pool::Buffer;
use crate::quantised::Quantised;
use crate::shape::{Kind, Shape};
use crate::shards::team::Each;
use crate::shards::{Division, Sharding, Team};
use crate::stage::ForwardContext;
use crate::stage::borders::{Borders, OnGpu, Spans};
use crate::stage::kept::Kept;
use crate::stage::layer::Layer;
use crate::tensor::Tensor;

/// The sum of a token's vector and, unless it is [of tokens only](Embedding::of_tokens), a position's vector:
/// ids `[batch, time]` to numbers `[batch, time, dim]`.
///
/// Parameters: the table of tokens `[vocab, dim]`, and the table of positions `[context, dim]`. The input has
/// no gradient. The layer keeps its ids.
#[derive(Debug)]
pub struct Embedding {
    name: String,
    tokens: Parameter,
    positions: Option<Parameter>,
    /// A token whose vector has no gradient.
    padding: Option<u32>,
    /// The rows of each token, of the last micro-batch that ran backward on a GPU.
    by_token: ByToken,
    /// The same of each position, where documents are kept apart.
    by_position: ByToken,
    /// The tokens here.
    own: Range<usize>,
    /// The end of each shard's tokens.
    ends: Vec<usize>,
    /// The shards, if there are several.
    team: Option<Team>,
    borders: Option<Borders>,
}

impl Embedding {
    /// A layer for token ids below `vocab`, in sequences of at most `context` tokens. Its parameters are
    /// GPT-2's: `wte.weight`, normal with standard deviation 0.02, and `wpe.weight`, normal with standard
    /// deviation 0.01.
    pub fn new(name: &str, vocab: usize, context: usize, dim: usize, seed: u64) -> Self {
        Self {
            name: name.to_owned(),
            tokens: Parameter::new("wte.weight", &[vocab, dim], Init::Normal(0.02), seed).taking_blocks(),
            positions: Some(Parameter::new("wpe.weight", &[context, dim], Init::Normal(0.01), seed)),
            padding: None,
            by_token: ByToken::default(),
            by_position: ByToken::default(),
            own: 0..vocab,
            ends: vec![vocab],
            team: None,
            borders: None,
        }
    }

    /// A layer for token ids below `vocab`, in sequences of any length, that knows no positions. Its
    /// parameter is named `table`.
    pub fn of_tokens(name: &str, table: &str, vocab: usize, dim: usize, init: Init, seed: u64) -> Self {
        Self {
            name: name.to_owned(),
            tokens: Parameter::new(table, &[vocab, dim], init, seed).taking_blocks(),
            positions: None,
            padding: None,
            by_token: ByToken::default(),
            by_position: ByToken::default(),
            own: 0..vocab,
            ends: vec![vocab],
            team: None,
            borders: None,
        }
    }

    /// Gives the vector of a token no gradient, as `padding_idx` of PyTorch's `Embedding` does. An optimizer
    /// with weight decay still makes the vector smaller, and an output projection that is tied to the table
    /// still adds its gradient.
    ///
    /// # Errors
    /// When there is no such token.
    pub fn with_padding(mut self, token: u32) -> Result<Self> {
        self.check_tokens("padding token", &[token])?;
        self.padding = Some(token);
        Ok(self)
    }

    /// The same layer, whose tokens are divided among shards.
    ///
    /// # Errors
    /// When there are more shards than tokens.
    pub fn divided(mut self, sharding: Sharding) -> Result<Self> {
        let division = Division::new(sharding, self.tokens.dims()[0], &[1])?;
        self.tokens.divide(true, &division);
        self.own = division.own().swap_remove(0);
        self.ends = division.ends();
        Ok(self)
    }

    fn dim(&self) -> usize {
        self.tokens.dims()[1]
    }

    fn is_frozen(&self) -> bool {
        self.tokens.is_frozen() && self.positions.as_ref().is_none_or(Parameter::is_frozen)
    }

    /// The tables that are trained: of tokens, and of positions.
    fn trained(&mut self) -> [Option<&mut Parameter>; 2] {
        [Some(&mut self.tokens), self.positions.as_mut()]
            .map(|table| table.filter(|parameter| !parameter.is_frozen()))
    }

    /// [`Layer::backward_weight`] on a GPU.
    fn add_grads_on(&mut self, gpu: &Gpu, input: &Tensor, grad: &Tensor, spans: Spans<'_>) -> Result<()> {
        let &[batch, time] = input.dims() else { unreachable!("checked by `output_shape`") };
        if !self.tokens.is_frozen() {
            self.by_token.sort(input.ids(), &self.own, self.padding);
            self.by_token.add_grads(gpu, self.tokens.weights().grad()?, grad)?;
        }
        let dim = self.dim();
        if spans.starts.is_some()
            && let Some(positions) = self.positions.as_ref().filter(|positions| !positions.is_frozen())
        {
            let mut of_rows = Tensor::scratch_ids(&[batch * time]);
            (0..).zip(of_rows.ids_mut()).for_each(|(row, own)| *own = spans.position(row) as u32);
            let all = 0..positions.dims()[0];
            self.by_position.sort(of_rows.ids(), &all, None);
            return self.by_position.add_grads(gpu, positions.weights().grad()?, grad);
        }
        match self.trained() {
            [_, Some(positions)] => {
                let args = args![positions.weights().grad()?, grad, batch, dim];
                gpu.launch(kernel!(grad.dtype(), "embedding_positions"), Grid::of_rows(time, dim), &args)
            }
            [_, None] => Ok(()),
        }
    }

    /// The starts of a micro-batch's documents, if they are kept apart and positions matter. Also on the GPU,
    /// if the table is there.
    fn starts(&self, ctx: ForwardContext, input: &Tensor) -> Result<(Option<Tensor>, Option<Rc<OnGpu>>)> {
        let &[batch, time] = input.dims() else { unreachable!("checked by `output_shape`") };
        let (Some(borders), Some(_)) = (&self.borders, &self.positions) else {
            return Ok((None, None));
        };
        let on_gpu = match self.tokens.on_gpu() {
            Some(weights) => borders.on_gpu(&*weights.gpu()?, ctx, [batch, time])?,
            None => None,
        };
        Ok((borders.of(ctx, [batch, time])?, on_gpu))
    }

    /// The vectors of tokens that follow `past` others.
    fn vectors(
        &self,
        past: usize,
        input: &Tensor,
        shape: Shape,
        (spans, on_gpu): (Spans<'_>, Option<&OnGpu>),
    ) -> Result<Tensor> {
        self.check_tokens("token", input.ids())?;
        let dim = self.dim();
        if let Some(weights) = self.tokens.on_gpu() {
            let (gpu, dtype) = (weights.gpu()?, weights.place().dtype);
            let (output, ids) = (Tensor::on_gpu(&gpu, dtype, shape.dims())?, input.ids());
            let positions = Positions { first_row: 0, ..self.positions_on_gpu(past, dtype, spans, on_gpu) };
            let Some(blocks) = weights.blocks() else {
                look_up_on(&gpu, &output, ids, weights.numbers(), positions)?;
                return Ok(output);
            };
            blocks.decode_rows(&gpu, dtype, output.at(), ids)?;
            let each: Vec<u32> = (0..ids.len() as u32).collect();
            look_up_on(&gpu, &output, &each, output.at(), positions)?;
            return Ok(output);
        }
        let dtype = self.tokens.place().dtype;
        let mut output = Tensor::on_host_in(dtype, shape.dims())?;
        let (ids, positions) = (input.ids(), self.positions.as_ref());
        let from = (past, spans);
        in_format!(dtype, N => {
            let out = By(output.numbers_mut::<N>(), dim);
            match (self.tokens.blocks(), self.tokens.halves()) {
                (Some(tokens), _) => match positions.and_then(Parameter::halves) {
                    Some(positions) => look_up_coded(out, ids, tokens, Some(positions), from),
                    None => look_up_coded(out, ids, tokens, positions.map(|table| &*table.value), from),
                },
                (None, Some(tokens)) => {
                    look_up(out, ids, tokens, positions.and_then(Parameter::halves), from);
                }
                (None, None) => {
                    look_up(out, ids, &self.tokens.value, positions.map(|table| &*table.value), from);
                }
            }
        });
        Ok(output)
    }

    /// The positions after `past` others.
    fn positions_on_gpu(
        &self,
        past: usize,
        dtype: DType,
        spans: Spans<'_>,
        on_gpu: Option<&OnGpu>,
    ) -> Positions {
        let of =
            |positions: &Parameter| positions.weights().numbers().offset(dtype.bytes() * past * self.dim());
        Positions {
            table: self.positions.as_ref().map_or(Ptr::NONE, of),
            first_row: 0,
            time: spans.time,
            starts: on_gpu.map_or(Ptr::NONE, |on_gpu| on_gpu.starts.at()),
        }
    }

    fn check_tokens(&self, what: &str, ids: &[u32]) -> Result<()> {
        check_ids(what, ids.iter().copied(), self.vocab()).map_err(|error| error.at(&self.name))
    }

    /// How many tokens there are, in all shards.
    fn vocab(&self) -> usize {
        self.ends.last().copied().unwrap_or(0)
    }

    /// This shard's rows, of several shards. Each shard gives each other the vectors of its own tokens.
    fn own_vectors(
        &self,
        team: &Team,
        past: usize,
        input: &Tensor,
        (spans, on_gpu): (Spans<'_>, Option<&OnGpu>),
    ) -> Result<Tensor> {
        self.check_tokens("token", input.ids())?;
        let (ids, dim, own) = (input.ids(), self.dim(), &self.own);
        let shards = 0..team.shard().of;
        let is_here = |id: &&u32| own.contains(&(**id as usize));
        // Buffers of few sizes, so that they are used again. What is left over is not read.
        let few_sizes = |count: usize, rows: &Range<usize>| count.next_power_of_two().min(rows.len());
        let coming = |shard: u32| {
            let before = shard.checked_sub(1).map_or(0, |last| self.ends[last as usize]);
            let of_shard = before..self.ends[shard as usize];
            let rows = team.own_rows();
            let is_there = |id: &&u32| of_shard.contains(&(**id as usize));
            [few_sizes(ids[rows.clone()].iter().filter(is_there).count(), &rows), dim]
        };
        if let Some(weights) = self.tokens.on_gpu() {
            let (gpu, dtype) = (weights.gpu()?, weights.place().dtype);
            let vectors = |shard| {
                let rows = team.rows_of(shard);
                let ids = ids[rows.clone()].iter().filter(is_here);
                let here: Vec<u32> = ids.map(|id| id - own.start as u32).collect();
                let vectors = Tensor::on_gpu(&gpu, dtype, &[few_sizes(here.len(), &rows), dim])?;
                look_up_on(&gpu, &vectors, &here, weights.numbers(), Positions::NONE)?;
                Ok(vectors)
            };
            let given: Result<Each> = shards.map(vectors).collect();
            let positions = self.positions_on_gpu(past, dtype, spans, on_gpu);
            return self.taken_vectors(&gpu, team, positions, input, &team.each(given?, coming)?);
        }
        let vectors = |shard| {
            let rows = team.rows_of(shard);
            let ids = ids[rows.clone()].iter().filter(is_here);
            let count = few_sizes(ids.clone().count(), &rows);
            let mut vectors = Tensor::on_host(&[count, dim])?;
            for (vector, &id) in vectors.f32_mut().chunks_exact_mut(dim).zip(ids) {
                vector.copy_from_slice(&self.tokens.value[(id as usize - own.start) * dim..][..dim]);
            }
            Ok(vectors)
        };
        let given: Result<Each> = shards.map(vectors).collect();
        let taken = team.each(given?, coming)?;
        let mut taken: SmallVec<[_; 4]> =
            taken.iter().map(|vectors| vectors.f32().chunks_exact(dim)).collect();
        let rows = team.own_rows();
        let dtype = self.tokens.place().dtype;
        let mut output = Tensor::on_host_in(dtype, &[rows.len(), dim])?;
        in_format!(dtype, N => {
            let out = output.numbers_mut::<N>().chunks_exact_mut(dim).zip(rows.clone());
            for (out, row) in out {
                let owner = self.ends.partition_point(|end| *end <= ids[row] as usize);
                let vector = taken[owner].next().ok_or_else(|| too_few(owner))?;
                match &self.positions {
                    Some(positions) => {
                        add_into(out, vector, &positions.value[(past + spans.position(row)) * dim..][..dim]);
                    }
                    None => convert(out, vector),
                }
            }
        });
        Ok(output)
    }
}

impl Embedding {
    /// [`Embedding::own_vectors`] on a GPU, from the vectors of each shard's tokens.
    fn taken_vectors(
        &self,
        gpu: &Gpu,
        team: &Team,
        positions: Positions,
        input: &Tensor,
        taken: &Each,
    ) -> Result<Tensor> {
        let (dim, dtype, rows) = (self.dim(), taken[0].dtype(), team.own_rows());
        let counts = taken.iter().map(|vectors| vectors.shape().rows());
        let mut firsts: SmallVec<[usize; 4]> = SmallVec::new();
        let all = counts.fold(0, |before, count| {
            firsts.push(before);
            before + count
        });
        let mut table = Tensor::on_gpu(gpu, dtype, &[all, dim])?;
        for (first, vectors) in firsts.iter().zip(taken) {
            table.put_rows(*first..first + vectors.shape().rows(), vectors)?;
        }
        let mut next = firsts.clone();
        let place = |id: &u32| {
            let owner = self.ends.partition_point(|end| *end <= *id as usize);
            let place = next[owner];
            next[owner] += 1;
            match place - firsts[owner] < taken[owner].shape().rows() {
                true => Ok(place as u32),
                false => Err(too_few(owner)),
            }
        };
        let places: Result<Vec<u32>> = input.ids()[rows.clone()].iter().map(place).collect();
        let output = Tensor::on_gpu(gpu, dtype, &[rows.len(), dim])?;
        let positions = Positions { first_row: rows.start, ..positions };
        look_up_on(gpu, &output, &places?, table.at(), positions)?;
        Ok(output)
    }
}

/// The positions of rows on a GPU: the table, the number of the first row, how many tokens a sequence has,
/// and the starts of documents.
struct Positions {
    table: Ptr,
    first_row: usize,
    time: usize,
    starts: Ptr,
}

impl Positions {
    /// Positions that do not matter.
    const NONE: Self = Self { table: Ptr::NONE, first_row: 0, time: 1, starts: Ptr::NONE };
}

/// The error for a shard that has sent fewer vectors than it has tokens.
fn too_few(shard: usize) -> Error {
    Error::new(format!(
        "shard {shard} sent too few vectors of tokens: all shards of a rank must have the same layers and \
         inputs"
    ))
}

/// Fills as many rows of a tensor on a GPU as there are ids, with vectors of a table, and of positions.
fn look_up_on(gpu: &Gpu, out: &Tensor, ids: &[u32], table: Ptr, positions: Positions) -> Result<()> {
    if ids.is_empty() {
        return Ok(());
    }
    let (on_gpu, dim) = (gpu.upload(bytemuck::cast_slice(ids))?, out.shape().last());
    let Positions { table: positions, first_row, time, starts } = positions;
    let args = args![out, &on_gpu, table, positions, first_row, time, starts, dim];
    gpu.launch(kernel!(out.dtype(), "embedding_forward"), Grid::of_rows(ids.len(), dim), &args)
}

/// Fills the rows of `out` with vectors of tables in this format. The tokens of each document follow `past`
/// others.
fn look_up<N: Real, M: Real>(
    out: By<&mut [N]>,
    ids: &[u32],
    tokens: &[M],
    positions: Option<&[M]>,
    (past, spans): (usize, Spans<'_>),
) {
    let dim = out.1;
    cut((out, By(ids, 1)), dim, |first, (out, ids)| {
        for (index, (row, &id)) in (first..).zip(out.chunks_exact_mut(dim).zip(ids)) {
            let token = &tokens[id as usize * dim..][..dim];
            match positions {
                Some(positions) => {
                    add_into(row, token, &positions[(past + spans.position(index)) * dim..][..dim])
                }
                None => convert(row, token),
            }
        }
    });
}

/// As [`look_up`], of a quantised table of tokens.
fn look_up_coded<N: Real, M: Real>(
    out: By<&mut [N]>,
    ids: &[u32],
    tokens: &Quantised,
    positions: Option<&[M]>,
    (past, spans): (usize, Spans<'_>),
) {
    let dim = out.1;
    cut((out, By(ids, 1)), dim, |first, (out, ids)| {
        let mut vector = Buffer::pooled(dim);
        for (index, (row, &id)) in (first..).zip(out.chunks_exact_mut(dim).zip(ids)) {
            tokens.decode(id as usize, 0..dim, &mut vector);
            match positions {
                Some(positions) => {
                    let position = &positions[(past + spans.position(index)) * dim..][..dim];
                    add_into(row, &vector[..], position);
                }
                None => convert(row, &vector[..]),
            }
        }
    });
}

impl Layer for Embedding {
    fn name(&self) -> &str {
        &self.name
    }

    fn runs_on_gpus(&self) -> bool {
        true
    }

    fn output_shape(&self, input: &Shape) -> Result<Shape> {
        let context = self.positions.as_ref().map(|positions| positions.dims()[0]);
        let is_long = |time| context.is_some_and(|context| time > context);
        match (input.kind(), input.dims()) {
            (Kind::Ids, &[batch, time]) if !is_long(time) && self.dim() > 0 => Ok(match &self.team {
                Some(team) => team.own_shape(self.dim()),
                None => Shape::f32(&[batch, time, self.dim()]),
            }),
            _ => Err(Error::shape(
                match context {
                    Some(context) => format!("ids[batch, time] with time at most {context}, the context"),
                    None => "ids[batch, time]".to_owned(),
                },
                input,
            )),
        }
    }

    fn forward(&mut self, ctx: ForwardContext, input: Tensor) -> Result<(Tensor, Kept)> {
        let shape = self.output_shape(input.shape())?;
        let (starts, on_gpu) = self.starts(ctx, &input)?;
        let spans = Spans { time: input.dims()[1], starts: starts.as_ref().map(Tensor::ids) };
        let spans = (spans, on_gpu.as_deref());
        let output = match &self.team {
            Some(team) => self.own_vectors(team, 0, &input, spans)?,
            None => self.vectors(0, &input, shape, spans)?,
        };
        Ok((output, Kept::new(ctx, [input])))
    }

    fn forward_next(&mut self, past: usize, input: Tensor) -> Result<Tensor> {
        let &[batch, time] = input.dims() else {
            return Err(Error::shape("ids[batch, time]", input.shape()));
        };
        self.output_shape(&Shape::ids(&[batch, past + time]))?;
        let spans = (Spans { time, starts: None }, None);
        if let Some(team) = &self.team {
            return self.own_vectors(team, past, &input, spans);
        }
        self.vectors(past, &input, Shape::f32(&[batch, time, self.dim()]), spans)
    }

    fn backward_input(&mut self, saved: Kept, grad: Tensor) -> Result<(Option<Tensor>, Kept)> {
        let ctx = saved.ctx;
        if self.is_frozen() {
            return Ok((None, Kept::new(ctx, [])));
        }
        let [input] = saved.into_tensors();
        Ok((None, Kept::new(ctx, [input, grad])))
    }

    fn backward_weight(&mut self, pending: Kept) -> Result<()> {
        if self.is_frozen() {
            return Ok(());
        }
        let ctx = pending.ctx;
        let [input, mut grad] = pending.into_tensors();
        let (starts, _) = self.starts(ctx, &input)?;
        let spans = Spans { time: input.dims()[1], starts: starts.as_ref().map(Tensor::ids) };
        if let Some(team) = &self.team {
            grad = team.gather(&grad)?;
        }
        let own = self.own.clone();
        let dim = self.dim();
        if let Some(gpu) = grad.gpu()? {
            return self.add_grads_on(&gpu, &input, &grad, spans);
        }
        let padding = self.padding;
        let [mut tokens, mut positions] = self.trained();
        in_format!(grad.dtype(), N => {
            let rows = grad.numbers::<N>().chunks_exact(dim).zip(input.ids());
            for (index, (row, &id)) in rows.enumerate() {
                if let Some(tokens) = &mut tokens
                    && padding != Some(id)
                    && own.contains(&(id as usize))
                {
                    add(&mut tokens.grad[(id as usize - own.start) * dim..][..dim], row);
                }
                if let Some(positions) = &mut positions {
                    add(&mut positions.grad[spans.position(index) * dim..][..dim], row);
                }
            }
        });
        Ok(())
    }

    fn join(&mut self, team: &Team) -> Result<()> {
        if self.ends.len() != team.shard().of as usize {
            return Err(Error::new("its tokens are not divided: see `Embedding::divided`"));
        }
        self.team = Some(team.clone());
        Ok(())
    }

    fn keep_apart(&mut self, borders: &Borders) -> Result<()> {
        self.borders = Some(borders.clone());
        Ok(())
    }

    fn hold_in_bf16(&mut self) {
        self.tokens.hold_in_bf16();
        self.positions.iter_mut().for_each(Parameter::hold_in_bf16);
    }

    fn visit_parameters<'a>(&'a mut self, visit: &mut dyn FnMut(&'a mut Parameter)) {
        visit(&mut self.tokens);
        self.positions.iter_mut().for_each(visit);
    }
}
