//! How much memory the units of a GPT need.

use super::{
    UnitSizes, biased, head, in_place, of_gains, of_rows, packed, packed_bf16, scratch, scratch_bf16,
};
use crate::layers::Layout;
use crate::models::Gpt;

impl Gpt {
    /// The sizes of all units, in order, for micro-batches of `rows` sequences of `seq` tokens.
    pub fn unit_sizes(&self, rows: usize, seq: usize) -> Vec<UnitSizes> {
        let tokens = (rows * seq) as u64;
        let blocks = (0..self.layers).flat_map(|_| [self.attention_sizes(tokens), self.mlp_sizes(tokens)]);
        let (embed, head) = (self.embed_sizes(tokens), head([self.dim, self.vocab], 2 * self.dim, tokens));
        std::iter::once(embed).chain(blocks).chain([head]).collect()
    }

    fn embed_sizes(&self, tokens: u64) -> UnitSizes {
        let stream = self.stream(tokens);
        UnitSizes {
            weights: (self.vocab * self.dim + self.context * self.dim) as u64,
            saved: tokens,
            saved_f32: tokens,
            selective: tokens,
            selective_f32: tokens,
            pending: tokens + stream,
            pending_f32: tokens,
            output: stream,
            ..UnitSizes::default()
        }
    }

    fn attention_sizes(&self, tokens: u64) -> UnitSizes {
        let (stream, dim) = (self.stream(tokens), self.dim);
        let linears = [[dim, 3 * dim], [dim, dim]];
        // Of the norm, and a sum for each head.
        let sums = of_rows(tokens) + tokens * self.heads as u64;
        UnitSizes {
            weights: (2 * dim) as u64 + biased(&linears),
            packed: packed(&linears, Layout::InOut, tokens),
            packed_bf16: packed_bf16(&linears),
            in_place: in_place(&linears, tokens),
            // The input; queries, keys and values; the output.
            saved: 5 * stream + sums,
            saved_f32: sums,
            selective: stream,
            pending: 6 * stream + of_gains(dim),
            pending_f32: of_gains(dim),
            output: stream,
            working: self.block_working(stream) + scratch(&linears, Layout::InOut, tokens),
            working_bf16: self.block_working(stream) + scratch_bf16(&linears, Layout::InOut, tokens),
            ..UnitSizes::default()
        }
    }

    fn mlp_sizes(&self, tokens: u64) -> UnitSizes {
        let (stream, dim) = (self.stream(tokens), self.dim);
        let linears = [[dim, 4 * dim], [4 * dim, dim]];
        UnitSizes {
            weights: (2 * dim) as u64 + biased(&linears),
            packed: packed(&linears, Layout::InOut, tokens),
            packed_bf16: packed_bf16(&linears),
            in_place: in_place(&linears, tokens),
            // The input; the wide activation before GELU.
            saved: 5 * stream + of_rows(tokens),
            saved_f32: of_rows(tokens),
            selective: stream,
            pending: 10 * stream + of_gains(dim),
            pending_f32: of_gains(dim),
            output: stream,
            working: self.block_working(stream) + scratch(&linears, Layout::InOut, tokens),
            working_bf16: self.block_working(stream) + scratch_bf16(&linears, Layout::InOut, tokens),
            ..UnitSizes::default()
        }
    }

    /// The numbers of the activation between units.
    fn stream(&self, tokens: u64) -> u64 {
        tokens * self.dim as u64
    }

    /// Buffers are reused by length: five as wide as the stream, one of three times and one of four times
    /// that width.
    fn block_working(&self, stream: u64) -> u64 {
        12 * stream
    }
}
