//! How much memory the units of a model need. Known before anything is made.

use super::{Gpt, Mlp};
use crate::layers::{Layout, adds_in_place, half_scratch, packed_halves, packed_weights, product_scratch};

/// What one unit of a model holds while it trains, for one micro-batch. All fields count numbers: of four
/// bytes, or of two in `bf16`. Weights, and what is in place, always have four.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnitSizes {
    /// Weights. The gradient and each of the optimizer's tensors hold as many numbers.
    pub weights: u64,
    /// Packed copies of weights, in the order in which products on the CPU read them in `f32`.
    pub packed: u64,
    /// The same in `bf16`.
    pub packed_bf16: u64,
    /// The weights whose gradient on the CPU, if it is that of a whole gradient group, is added in place to
    /// the sum of the group before.
    pub in_place: u64,
    /// What forward keeps for backward-input.
    pub saved: u64,
    /// The part of `saved` that the unit before keeps too.
    pub shared: u64,
    /// What backward-input keeps for backward-weight.
    pub pending: u64,
    /// The output.
    pub output: u64,
    /// What forward keeps if the unit recomputes its interior in backward.
    pub selective: u64,
    /// What a pass needs in addition while it runs. Units of the same model use the same buffers.
    pub working: u64,
    /// The same in `bf16` on the CPU.
    pub working_bf16: u64,
}

impl Gpt {
    /// The sizes of all units, in order, for micro-batches of `rows` sequences of `context` tokens.
    pub fn unit_sizes(&self, rows: usize) -> Vec<UnitSizes> {
        let blocks = (0..self.layers).flat_map(|_| [self.attention_sizes(rows), self.mlp_sizes(rows)]);
        let (embed, head) = (self.embed_sizes(rows), self.head_sizes(rows));
        std::iter::once(embed).chain(blocks).chain([head]).collect()
    }

    fn embed_sizes(&self, rows: usize) -> UnitSizes {
        let (tokens, stream) = self.stream(rows);
        UnitSizes {
            weights: (self.vocab * self.dim + self.context * self.dim) as u64,
            saved: tokens,
            selective: tokens,
            pending: tokens + stream,
            output: stream,
            ..UnitSizes::default()
        }
    }

    fn attention_sizes(&self, rows: usize) -> UnitSizes {
        let ((tokens, stream), dim) = (self.stream(rows), self.dim);
        let linears = [[dim, 3 * dim], [dim, dim]];
        UnitSizes {
            weights: (2 * dim) as u64 + biased(&linears),
            packed: packed(&linears, Layout::InOut, tokens),
            packed_bf16: packed_bf16(&linears),
            in_place: in_place(&linears, tokens),
            // The input with its mean and deviation; queries, keys and values; the output; a sum for each
            // head.
            saved: 5 * stream + 2 * tokens + tokens * self.heads as u64,
            selective: stream,
            pending: 6 * stream,
            output: stream,
            working: self.block_working(stream) + scratch(&linears, Layout::InOut, tokens),
            working_bf16: self.block_working(stream) + scratch_bf16(&linears, Layout::InOut, tokens),
            ..UnitSizes::default()
        }
    }

    fn mlp_sizes(&self, rows: usize) -> UnitSizes {
        let ((tokens, stream), dim) = (self.stream(rows), self.dim);
        let linears = [[dim, 4 * dim], [4 * dim, dim]];
        UnitSizes {
            weights: (2 * dim) as u64 + biased(&linears),
            packed: packed(&linears, Layout::InOut, tokens),
            packed_bf16: packed_bf16(&linears),
            in_place: in_place(&linears, tokens),
            // The input with its mean and deviation; the wide activation before GELU.
            saved: 5 * stream + 2 * tokens,
            selective: stream,
            pending: 10 * stream,
            output: stream,
            working: self.block_working(stream) + scratch(&linears, Layout::InOut, tokens),
            working_bf16: self.block_working(stream) + scratch_bf16(&linears, Layout::InOut, tokens),
            ..UnitSizes::default()
        }
    }

    fn head_sizes(&self, rows: usize) -> UnitSizes {
        let (tokens, stream) = self.stream(rows);
        let linear = [[self.dim, self.vocab]];
        let scores = tokens * self.vocab as u64;
        UnitSizes {
            weights: (2 * self.dim + self.dim * self.vocab) as u64,
            packed: packed(&linear, Layout::OutIn, tokens),
            packed_bf16: packed_bf16(&linear),
            in_place: in_place(&linear, tokens),
            saved: stream + 2 * tokens,
            selective: stream + 2 * tokens,
            pending: stream + scores,
            output: scores,
            working: 3 * stream + scratch(&linear, Layout::OutIn, tokens),
            working_bf16: 3 * stream + scratch_bf16(&linear, Layout::OutIn, tokens),
            ..UnitSizes::default()
        }
    }

    /// The tokens of a micro-batch, and the numbers of the activation between units.
    fn stream(&self, rows: usize) -> (u64, u64) {
        let tokens = (rows * self.context) as u64;
        (tokens, tokens * self.dim as u64)
    }

    /// Buffers are reused by length: five as wide as the stream, one of three times and one of four times
    /// that width.
    fn block_working(&self, stream: u64) -> u64 {
        12 * stream
    }
}

impl Mlp {
    /// The sizes of all units, in order, for micro-batches of `rows` rows.
    pub fn unit_sizes(&self, rows: usize) -> Vec<UnitSizes> {
        let wide = |width: usize| (rows * width) as u64;
        let input = self.sizes.first().map_or(0, |&width| wide(width));
        let mut units = vec![UnitSizes {
            output: input,
            ..UnitSizes::default()
        }];
        for (index, pair) in self.sizes.windows(2).enumerate() {
            let (inputs, outputs) = (wide(pair[0]), wide(pair[1]));
            let (linear, rows) = ([[pair[0], pair[1]]], rows as u64);
            units.push(UnitSizes {
                weights: biased(&linear),
                packed: packed(&linear, Layout::OutIn, rows),
                packed_bf16: packed_bf16(&linear),
                in_place: in_place(&linear, rows),
                saved: inputs,
                selective: inputs,
                // This layer reads the previous activation itself, unless dropout made a copy of it.
                shared: if index > 0 && self.dropout == 0.0 {
                    inputs
                } else {
                    0
                },
                pending: inputs + outputs,
                output: outputs,
                working: inputs + outputs + scratch(&linear, Layout::OutIn, rows),
                working_bf16: inputs + outputs + scratch_bf16(&linear, Layout::OutIn, rows),
            });
            if index + 2 < self.sizes.len() {
                units.push(UnitSizes {
                    saved: outputs,
                    selective: outputs,
                    output: outputs,
                    working: outputs,
                    working_bf16: outputs,
                    ..UnitSizes::default()
                });
            }
        }
        units
    }
}

/// The weights and biases of linear layers with these inputs and outputs.
fn biased(linears: &[[usize; 2]]) -> u64 {
    let numbers = linears.iter().map(|[inputs, outputs]| (inputs + 1) * outputs);
    numbers.sum::<usize>() as u64
}

/// The packed weights that linear layers with these inputs and outputs keep.
fn packed(linears: &[[usize; 2]], layout: Layout, rows: u64) -> u64 {
    let numbers = linears
        .iter()
        .map(|&sizes| packed_weights(sizes, layout, rows as usize));
    numbers.sum::<usize>() as u64
}

/// As [`packed`], in `bf16`.
fn packed_bf16(linears: &[[usize; 2]]) -> u64 {
    let numbers = linears.iter().map(|&sizes| packed_halves(sizes));
    numbers.sum::<usize>() as u64
}

/// The weights of linear layers with these inputs and outputs, if their gradients are added in place.
fn in_place(linears: &[[usize; 2]], rows: u64) -> u64 {
    let numbers = linears.iter().map(|[inputs, outputs]| inputs * outputs);
    match adds_in_place(rows as usize) {
        true => numbers.sum::<usize>() as u64,
        false => 0,
    }
}

/// What the largest product of linear layers with these inputs and outputs needs while it runs.
fn scratch(linears: &[[usize; 2]], layout: Layout, rows: u64) -> u64 {
    let numbers = linears
        .iter()
        .map(|&sizes| product_scratch(sizes, layout, rows as usize));
    numbers.max().unwrap_or(0) as u64
}

/// As [`scratch`], in `bf16`.
fn scratch_bf16(linears: &[[usize; 2]], layout: Layout, rows: u64) -> u64 {
    let numbers = linears
        .iter()
        .map(|&sizes| half_scratch(sizes, layout, rows as usize));
    numbers.max().unwrap_or(0) as u64
}
