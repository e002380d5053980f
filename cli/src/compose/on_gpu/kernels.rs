//! Which kernels a GPU runs in each unit of a model of tokens, in `bf16`, as the layers of `stages/` queue
//! them.

use std::mem::take;

use pipewright::stages::layers::{Heads, rows_at_once};
use pipewright::stages::models::{ParameterContents, Part};
use pipewright::stages::{Device, Lora, Recompute};

use pipewright::plan::{Kernel, Work};

/// The bytes of a number of an activation, and of a gradient of weights.
const HALF: usize = 2;
const FLOAT: usize = 4;

/// The name of all kernels of adapters.
const ADAPTERS: &str = "adapters";
/// The name of the kernels that decode quantised matrices.
const DECODING: &str = "decoding";
/// The name of the kernels that add up columns for biases.
const BIAS_SUMS: &str = "sums of bias gradients";

/// What a GPU runs in a unit of a model, for one micro-batch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UnitKernels {
    /// The forward, of the last unit with the loss.
    pub forward: Vec<Kernel>,
    /// The backward-input.
    pub backward_input: Vec<Kernel>,
    /// The backward-weight.
    pub backward_weight: Vec<Kernel>,
    /// The weights that are updated.
    pub weights: usize,
}

/// The rows of a micro-batch: how many, and how long a sequence is.
#[derive(Clone, Copy)]
pub(super) struct Rows {
    pub(super) tokens: usize,
    pub(super) seq: usize,
    /// In how many pairs a token sees itself or an earlier one, if sequences are not all full, or have
    /// documents that are kept apart.
    pub(super) pairs: Option<f64>,
}

impl Rows {
    /// The pairs, if a token sees `window` keys at most.
    fn pairs(self, window: usize) -> f64 {
        let [tokens, seq, window] = [self.tokens, self.seq, window].map(|number| number as f64);
        match self.pairs {
            Some(pairs) => pairs.min(tokens * window),
            // Of one sequence: a triangle of queries that see fewer keys, and the rows after it.
            None => tokens / seq * (window * window / 2.0 + (seq - window) * window),
        }
    }
}

/// A unit of a model.
pub(super) struct Unit<'a> {
    pub(super) parts: &'a [Part],
    /// Its parameters, unless all are trained and there are no adapters.
    pub(super) parameters: Option<&'a [ParameterContents]>,
}

/// What units do besides their parts.
#[derive(Clone, Copy)]
pub(super) struct More {
    pub(super) how: Recompute,
    /// Whether the input of adapters has dropout.
    pub(super) drops_in_adapters: bool,
    /// Whether the loss compares answers: see `Preference`.
    pub(super) compares_answers: bool,
}

/// The units of a model of tokens without experts, for a micro-batch. Units that are frozen, up to the first
/// that is trained, have no backward. `more.how`: with [`Recompute::None`], norms and activations are
/// not computed again; with [`Recompute::Selective`], each branch of a block is, up to its last product. What
/// [`Recompute::Full`] takes follows from the forward.
pub(super) fn of_units(units: &[Unit<'_>], more: More, rows: Rows) -> Vec<UnitKernels> {
    let (mut width, mut is_frozen) = (0, true);
    let units = units.iter().map(|unit| {
        let mut builder = Builder {
            kernels: UnitKernels::default(),
            rows,
            width,
            drops: false,
            left: unit.parameters,
            norm: None,
            bias_sums: None,
            branch: 0,
            more,
        };
        unit.parts.iter().for_each(|part| builder.add(*part));
        width = builder.width;
        is_frozen &= unit.parameters.is_some_and(|all| all.iter().all(|parameter| parameter.is_frozen));
        let kernels = builder.kernels;
        match is_frozen {
            true => UnitKernels { backward_input: Vec::new(), backward_weight: Vec::new(), ..kernels },
            false => kernels,
        }
    });
    units.collect()
}

/// Adds layers to a unit.
struct Builder<'a> {
    kernels: UnitKernels,
    rows: Rows,
    /// The numbers of the activation of a token.
    width: usize,
    /// Whether the unit has dropout.
    drops: bool,
    /// The parameters of the parts to come, if they differ in how they are trained.
    left: Option<&'a [ParameterContents]>,
    /// A norm that runs again in the backward-weight of the product after it.
    norm: Option<Kernel>,
    /// Where in backward-weight the sums for the bias of the last product are.
    bias_sums: Option<usize>,
    /// How many kernels were in forward before this branch of a block.
    branch: usize,
    more: More,
}

impl Builder<'_> {
    fn add(&mut self, part: Part) {
        let width = self.width;
        match part {
            Part::Embedding(tables, dim) => self.embedding(tables, dim),
            Part::Norm(dim, parameters) => self.norm(dim, parameters),
            Part::HeadNorm(heads) => self.head_norm(turned(heads), heads.width),
            Part::Rotary(heads) => self.in_place("rotary", turned(heads)),
            Part::Attention(heads, seen) => self.attention(heads, seen.min(self.rows.seq)),
            Part::Linear(sizes, _, bias) => self.linear(sizes, bias),
            Part::Scores(sizes, tied) => self.scores(sizes, tied),
            Part::Gelu => {
                self.make_bias_sums();
                self.activation("gelu", [width; 2]);
            }
            Part::Gated => self.activation("gate", [width, width / 2]),
            Part::Dropout => {
                self.in_place("dropout", width);
                self.drops = true;
            }
            Part::Residual => self.residual(width, self.drops),
            _ => (),
        }
    }

    /// The next parameter, if parameters differ.
    fn next(&mut self) -> Option<&ParameterContents> {
        self.left.as_mut().and_then(|left| left.split_off_first())
    }

    /// Whether the next parameter is trained.
    fn is_trained(&mut self) -> bool {
        self.next().is_none_or(|next| !next.is_frozen)
    }

    /// Whether the next parameter, a matrix, is trained. If it is quantised, it is decoded before each
    /// product.
    fn matrix(&mut self) -> (bool, Option<Kernel>) {
        let Some(next) = self.next() else {
            return (true, None);
        };
        let bytes = next.numbers() * HALF + next.bytes();
        let decoding = Kernel { name: DECODING, work: Work::Bytes(bytes as f64), launches: 1 };
        (!next.is_frozen, next.quantisation.map(|_| decoding))
    }

    /// `[inputs, rank, outputs]` of the next adapters, and how many of their weights are trained.
    fn adapters(&mut self) -> Vec<([usize; 3], usize)> {
        let mut adapters = Vec::new();
        while let Some([down, up, rest @ ..]) = self.left
            && Lora::is_adapter(&down.name)
        {
            let trained = [down, up].into_iter().filter(|matrix| !matrix.is_frozen);
            let sizes = [down.dims[1], down.dims[0], up.dims[0]];
            adapters.push((sizes, trained.map(ParameterContents::numbers).sum()));
            self.left = Some(rest);
        }
        adapters
    }

    /// `of_token` bytes of each token.
    fn bytes(&self, name: &'static str, of_token: usize, launches: u32) -> Kernel {
        Kernel { name, work: Work::Bytes((self.rows.tokens * of_token) as f64), launches }
    }

    fn product(name: &'static str, size: [usize; 2], inner: usize, bytes: usize) -> Kernel {
        let work = Work::Product { size, inner, bytes };
        let launches = 1;
        Kernel { name, work, launches }
    }

    /// A norm. Its backward ends with a sum over rows.
    fn norm(&mut self, dim: usize, parameters: usize) {
        let forward = self.bytes("norm", 2 * HALF * dim, 1);
        let backward = self.bytes("norm backward", 3 * HALF * dim, 2);
        self.kernels.forward.push(forward);
        self.kernels.backward_input.push(backward);
        self.norm = Some(forward).filter(|_| self.more.how != Recompute::None);
        for _ in 0..parameters {
            self.kernels.weights += if self.is_trained() { dim } else { 0 };
        }
    }

    /// Norms of the heads of queries and keys, in place.
    fn head_norm(&mut self, turned: usize, width: usize) {
        let forward = self.bytes("head norm", 2 * HALF * turned, 1);
        let backward = self.bytes("head norm backward", 3 * HALF * turned, 2);
        self.kernels.forward.push(forward);
        self.kernels.backward_input.push(backward);
        for _ in 0..2 {
            self.kernels.weights += if self.is_trained() { width } else { 0 };
        }
    }

    fn linear(&mut self, [inputs, outputs]: [usize; 2], bias: bool) {
        let tokens = self.rows.tokens;
        let (is_trained, decoding) = self.matrix();
        let adds_bias = bias && self.is_trained();
        let adapters = self.adapters();
        let norm = self.norm.take();
        if is_trained || !adapters.is_empty() {
            self.kernels.backward_weight.extend(norm);
        }
        let unit = &mut self.kernels;
        unit.forward.push(Self::product("product forward", [tokens, outputs], inputs, HALF));
        unit.backward_input.push(Self::product("product backward-input", [tokens, inputs], outputs, HALF));
        unit.forward.extend(decoding);
        unit.backward_input.extend(decoding);
        if is_trained {
            let product = Self::product("product backward-weight", [inputs, outputs], tokens, FLOAT);
            unit.backward_weight.push(product);
            unit.weights += inputs * outputs;
        }
        self.bias_sums = adds_bias.then_some(self.kernels.backward_weight.len());
        if adds_bias {
            let sums = self.bytes(BIAS_SUMS, HALF * outputs, 2);
            self.kernels.backward_weight.push(sums);
            self.kernels.weights += outputs;
        }
        for (sizes, trained) in adapters {
            self.adapter(sizes);
            self.kernels.weights += trained;
        }
        self.width = outputs;
    }

    /// An adapter. Its products are so narrow that their time is the time of what they read and write.
    fn adapter(&mut self, [inputs, rank, outputs]: [usize; 3]) {
        let kernel = |of_token: usize| self.bytes(ADAPTERS, HALF * of_token, 1);
        // The second product adds to the output.
        let forward = [kernel(inputs + rank), kernel(rank + 2 * outputs)];
        let backward_input = [kernel(outputs + rank), kernel(rank + 2 * inputs)];
        // What is between the matrices, and its gradient, are there already.
        let backward_weight = [outputs, inputs].map(|numbers| kernel(numbers + rank));
        // Dropout copies the input, also for the gradients. The input gradient is added after it.
        let dropped = kernel(2 * inputs);
        let once = self.adapter_forwards() - forward.len();
        let apart = 2 * once;
        self.kernels.forward.extend(std::iter::repeat_n(dropped, once));
        self.kernels.backward_input.extend(std::iter::repeat_n(dropped, apart));
        self.kernels.backward_weight.extend(std::iter::repeat_n(dropped, once));
        self.kernels.forward.extend(forward);
        self.kernels.backward_input.extend(backward_input);
        self.kernels.backward_weight.extend(backward_weight);
    }

    /// How many kernels the forward of an adapter has: two products, and dropout if there is such.
    fn adapter_forwards(&self) -> usize {
        if self.more.drops_in_adapters { 3 } else { 2 }
    }

    /// The activation after a product makes the sums for its bias, of slices of the rows. What is left is to
    /// add these up.
    fn make_bias_sums(&mut self) {
        if let Some(index) = self.bias_sums.take() {
            self.kernels.backward_weight[index] = self.bytes(BIAS_SUMS, 0, 1);
        }
    }

    /// An activation that makes rows of `after` numbers from rows of `before`. Backward reads the rows before
    /// and a gradient after, and writes a gradient before. It makes the output again, unless that is kept.
    fn activation(&mut self, name: &'static str, [before, after]: [usize; 2]) {
        let forward = self.bytes(name, HALF * (before + after), 1);
        let again = if self.more.how == Recompute::None { 0 } else { after };
        let backward = self.bytes(name, HALF * (2 * before + after + again), 1);
        self.kernels.forward.push(forward);
        self.kernels.backward_input.push(backward);
        self.width = after;
    }

    /// Something that reads and writes `numbers` numbers of a token in place, forward and backward.
    fn in_place(&mut self, name: &'static str, numbers: usize) {
        let kernel = self.bytes(name, 2 * HALF * numbers, 1);
        self.kernels.forward.push(kernel);
        self.kernels.backward_input.push(kernel);
    }

    /// The product at the end of a block reads what it adds to, and so does the norm's backward. A sum after
    /// dropout is a kernel of its own.
    fn residual(&mut self, dim: usize, drops: bool) {
        let read = self.bytes("residual read", HALF * dim, 0);
        let forward = match drops {
            true => self.bytes("residual sum", 3 * HALF * dim, 1),
            false => read,
        };
        self.kernels.forward.push(forward);
        self.kernels.backward_input.push(read);
        let branch = &self.kernels.forward[self.branch..];
        let last = branch.iter().rposition(|kernel| matches!(kernel.work, Work::Product { .. }));
        if self.more.how == Recompute::Selective {
            let (again, end) = branch.split_at(last.unwrap_or(0));
            // Of the last product's adapters, all but the product that adds to the output.
            let of_adapters: Vec<Kernel> =
                end.iter().filter(|kernel| kernel.name == ADAPTERS).copied().collect();
            let inner = of_adapters.chunks(self.adapter_forwards()).flat_map(|kernels| kernels.split_last());
            let again = again.iter().chain(inner.flat_map(|(_, inner)| inner));
            self.kernels.backward_input.extend(again.copied());
        }
        self.branch = self.kernels.forward.len();
    }

    /// Causal attention, where a query sees `window` keys at most. Forward has two products. Backward has
    /// seven, in two kernels, or eight in three for the widest heads. Another one reads outputs and their
    /// gradients.
    fn attention(&mut self, heads: Heads, window: usize) {
        let queries = heads.query * heads.width;
        let product = 2.0 * self.rows.pairs(window) * queries as f64;
        let kernel = |name, products: f64, backward, launches| Kernel {
            name,
            work: Work::Attention { operations: products * product, backward },
            launches,
        };
        let delta = self.bytes("attention delta", 2 * HALF * queries, 1);
        self.kernels.forward.push(kernel("attention", 2.0, false, 1));
        let (products, launches) = if heads.width > 128 { (8.0, 3) } else { (7.0, 2) };
        let backward = kernel("attention backward", products, true, launches);
        self.kernels.backward_input.extend([delta, backward]);
        self.width = queries;
    }

    /// Tables of `tokens` and `positions` rows. Their gradients are in `f32`.
    fn embedding(&mut self, [tokens, positions]: [usize; 2], dim: usize) {
        let tables = [tokens, positions].into_iter().filter(|rows| *rows > 0);
        let trained: Vec<usize> = tables.clone().filter(|_| self.is_trained()).collect();
        let forward = self.bytes("embedding", (tables.count() + 1) * HALF * dim, 1);
        self.kernels.forward.push(forward);
        if !trained.is_empty() {
            let bytes = trained.len() * HALF * dim + 2 * FLOAT * dim;
            self.kernels.backward_weight.push(self.bytes("embedding backward", bytes, 3));
        }
        self.kernels.weights += trained.iter().sum::<usize>() * dim;
        self.width = dim;
    }

    /// The scores of all tokens and the loss, which turns scores into their gradient. Tied weights are
    /// updated with the embedding.
    fn scores(&mut self, [dim, vocab]: [usize; 2], tied: bool) {
        let before = self.kernels.weights;
        self.linear([dim, vocab], false);
        let is_trained = self.kernels.weights > before;
        if tied {
            self.kernels.weights = before;
        }
        let mut losses = vec![self.bytes("cross-entropy", 2 * HALF * vocab, 2)];
        if self.more.compares_answers {
            losses.push(self.bytes("scaling of rows", 2 * HALF * vocab, 1));
        }
        match Part::Scores([dim, vocab], tied).is_deferred(self.rows.tokens) {
            true => self.defer_scores([dim, vocab], losses, is_trained),
            false => self.kernels.forward.extend(losses),
        }
    }

    /// All products and the loss run in backward-input, for some rows at a time. The norm before them is not
    /// run again.
    fn defer_scores(&mut self, [dim, vocab]: [usize; 2], losses: Vec<Kernel>, is_trained: bool) {
        let looked_at = self.bytes("cross-entropy", HALF * vocab, 1);
        let unit = &mut self.kernels;
        let weight = take(&mut unit.backward_weight);
        let adapters = weight.into_iter().filter(|kernel| kernel.name == ADAPTERS);
        let is_scores = |kernel: &Kernel| matches!(kernel.work, Work::Product { .. });
        let first = unit.forward.iter().rposition(is_scores).unwrap_or(unit.forward.len());
        let most = rows_at_once(Device::Cuda(0));
        let times = self.rows.tokens.div_ceil(most);
        // Scores in blocks are decoded for each of these parts of the rows.
        let again = unit.backward_input.iter().chain(&unit.forward[first..]);
        let again: Vec<Kernel> = again.filter(|kernel| kernel.name == DECODING).copied().collect();
        if self.more.compares_answers {
            // All rows are looked at before the first gradient.
            unit.backward_input.extend_from_slice(&unit.forward[first..]);
            unit.backward_input.push(looked_at);
        }
        unit.backward_input.extend(unit.forward.drain(first..));
        unit.backward_input.extend(losses);
        unit.backward_input.extend(adapters);
        unit.backward_input.extend(std::iter::repeat_n(again, times.saturating_sub(1)).flatten());
        for first in (0..self.rows.tokens).step_by(most).filter(|_| is_trained) {
            let rows = most.min(self.rows.tokens - first);
            let product = Self::product("product backward-weight", [dim, vocab], rows, FLOAT);
            unit.backward_input.push(product);
        }
    }
}

/// The numbers of queries and keys of a token.
fn turned(heads: Heads) -> usize {
    (heads.query + heads.key_value) * heads.width
}
