//! Which kernels a GPU runs in each unit of a model of tokens, in `bf16`, as the layers of `stages/` queue
//! them.

use pipewright::stages::Device;
use pipewright::stages::layers::{Heads, rows_at_once};
use pipewright::stages::models::Part;

use pipewright::plan::{Kernel, Work};

/// The bytes of a number of an activation, and of a gradient of weights.
const HALF: usize = 2;
const FLOAT: usize = 4;

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

/// Rows of `tokens`, in sequences of `seq`.
#[derive(Clone, Copy)]
struct Rows {
    tokens: usize,
    seq: usize,
}

/// The units of a model of tokens without experts, for `sequences` sequences.
pub(super) fn of_units(units: &[&[Part]], sequences: usize, seq: usize) -> Vec<UnitKernels> {
    let rows = Rows { tokens: sequences * seq, seq };
    let mut width = 0;
    let units = units.iter().map(|parts| {
        let mut unit = Builder { kernels: UnitKernels::default(), rows, width, drops: false };
        parts.iter().for_each(|part| unit.add(*part));
        width = unit.width;
        unit.kernels
    });
    units.collect()
}

/// Adds layers to a unit.
struct Builder {
    kernels: UnitKernels,
    rows: Rows,
    /// The numbers of the activation of a token.
    width: usize,
    /// Whether the unit has dropout.
    drops: bool,
}

impl Builder {
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
            Part::Gelu => self.activation("gelu", [width; 2]),
            Part::Gated => self.activation("gate", [width, width / 2]),
            Part::Dropout => {
                self.in_place("dropout", width);
                self.drops = true;
            }
            Part::Residual => self.residual(width, self.drops),
            _ => (),
        }
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

    /// A norm that runs again in the backward-weight of the product after it. Its backward ends with a sum
    /// over rows.
    fn norm(&mut self, dim: usize, parameters: usize) {
        let forward = self.bytes("norm", 2 * HALF * dim, 1);
        let backward = self.bytes("norm backward", 3 * HALF * dim, 2);
        self.kernels.forward.push(forward);
        self.kernels.backward_input.push(backward);
        self.kernels.backward_weight.push(forward);
        self.kernels.weights += parameters * dim;
    }

    /// Norms of the heads of queries and keys, in place.
    fn head_norm(&mut self, turned: usize, width: usize) {
        let forward = self.bytes("head norm", 2 * HALF * turned, 1);
        let backward = self.bytes("head norm backward", 3 * HALF * turned, 2);
        self.kernels.forward.push(forward);
        self.kernels.backward_input.push(backward);
        self.kernels.weights += 2 * width;
    }

    fn linear(&mut self, [inputs, outputs]: [usize; 2], bias: bool) {
        let tokens = self.rows.tokens;
        let unit = &mut self.kernels;
        unit.forward.push(Self::product("product forward", [tokens, outputs], inputs, HALF));
        unit.backward_input.push(Self::product("product backward-input", [tokens, inputs], outputs, HALF));
        unit.backward_weight.push(Self::product("product backward-weight", [inputs, outputs], tokens, FLOAT));
        if bias {
            let sums = self.bytes("sums of bias gradients", HALF * outputs, 2);
            self.kernels.backward_weight.push(sums);
            self.kernels.weights += outputs;
        }
        self.kernels.weights += inputs * outputs;
        self.width = outputs;
    }

    /// An activation that makes rows of `after` numbers from rows of `before`. Backward makes its output
    /// again.
    fn activation(&mut self, name: &'static str, [before, after]: [usize; 2]) {
        let forward = self.bytes(name, HALF * (before + after), 1);
        let backward = self.bytes(name, 2 * HALF * (before + after), 1);
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
    }

    /// Causal attention, where a query sees `window` keys at most. Forward has two products, and backward
    /// seven, in two kernels. A third one reads outputs and their gradients.
    fn attention(&mut self, heads: Heads, window: usize) {
        let (seq, window) = (self.rows.seq as f64, window as f64);
        // Of one sequence: a triangle of queries that see fewer keys, and the rows after it.
        let pairs = window * window / 2.0 + (seq - window) * window;
        let sequences = (self.rows.tokens / self.rows.seq) as f64;
        let queries = heads.query * heads.width;
        let product = 2.0 * sequences * pairs * queries as f64;
        let kernel = |name, products: f64, backward, launches| Kernel {
            name,
            work: Work::Attention { operations: products * product, backward },
            launches,
        };
        let delta = self.bytes("attention delta", 2 * HALF * queries, 1);
        self.kernels.forward.push(kernel("attention", 2.0, false, 1));
        let backward = kernel("attention backward", 7.0, true, 2);
        self.kernels.backward_input.extend([delta, backward]);
        self.width = queries;
    }

    /// Tables of `tokens` and `positions` rows. Their gradients are in `f32`.
    fn embedding(&mut self, [tokens, positions]: [usize; 2], dim: usize) {
        let tables = 1 + usize::from(positions > 0);
        let forward = self.bytes("embedding", (tables + 1) * HALF * dim, 1);
        let backward = self.bytes("embedding backward", tables * HALF * dim + 2 * FLOAT * dim, 3);
        self.kernels.forward.push(forward);
        self.kernels.backward_weight.push(backward);
        self.kernels.weights += (tokens + positions) * dim;
        self.width = dim;
    }

    /// The scores of all tokens and the loss, which turns scores into their gradient. Tied weights are
    /// updated with the embedding.
    fn scores(&mut self, [dim, vocab]: [usize; 2], tied: bool) {
        self.linear([dim, vocab], false);
        if tied {
            self.kernels.weights -= dim * vocab;
        }
        let loss = self.bytes("cross-entropy", 2 * HALF * vocab, 2);
        match Part::Scores([dim, vocab], tied).is_deferred(self.rows.tokens) {
            true => self.defer_scores([dim, vocab], loss),
            false => self.kernels.forward.push(loss),
        }
    }

    /// All products and the loss run in backward-input, for some rows at a time. The norm before them is not
    /// run again.
    fn defer_scores(&mut self, [dim, vocab]: [usize; 2], loss: Kernel) {
        let unit = &mut self.kernels;
        unit.backward_weight.clear();
        unit.backward_input.extend(unit.forward.pop());
        unit.backward_input.push(loss);
        let most = rows_at_once(Device::Cuda(0));
        for first in (0..self.rows.tokens).step_by(most) {
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
