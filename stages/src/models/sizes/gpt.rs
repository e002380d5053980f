//! How much memory the units of a GPT need.

use super::{UnitSizes, biased, in_place, packed, packed_bf16, scratch, scratch_bf16};
use crate::layers::Layout;
use crate::models::Gpt;

impl Gpt {
    /// The sizes of all units, in order, for micro-batches of `rows` sequences of `seq` tokens.
    pub fn unit_sizes(&self, rows: usize, seq: usize) -> Vec<UnitSizes> {
        let tokens = (rows * seq) as u64;
        let blocks = (0..self.layers).flat_map(|_| [self.attention_sizes(tokens), self.mlp_sizes(tokens)]);
        let (embed, head) = (self.embed_sizes(tokens), self.head_sizes(tokens));
        std::iter::once(embed).chain(blocks).chain([head]).collect()
    }

    fn embed_sizes(&self, tokens: u64) -> UnitSizes {
        let stream = self.stream(tokens);
        UnitSizes {
            weights: (self.vocab * self.dim + self.context * self.dim) as u64,
            saved: tokens,
            selective: tokens,
            pending: tokens + stream,
            output: stream,
            ..UnitSizes::default()
        }
    }

    fn attention_sizes(&self, tokens: u64) -> UnitSizes {
        let (stream, dim) = (self.stream(tokens), self.dim);
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

    fn mlp_sizes(&self, tokens: u64) -> UnitSizes {
        let (stream, dim) = (self.stream(tokens), self.dim);
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

    fn head_sizes(&self, tokens: u64) -> UnitSizes {
        let stream = self.stream(tokens);
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
