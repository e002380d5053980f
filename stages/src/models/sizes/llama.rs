//! How much memory the units of a Llama need.

use super::{UnitSizes, in_place, packed, packed_bf16, scratch, scratch_bf16};
use crate::layers::Layout;
use crate::models::Llama;

impl Llama {
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
            weights: (self.vocab * self.dim) as u64,
            saved: tokens,
            selective: tokens,
            pending: tokens + stream,
            output: stream,
            ..UnitSizes::default()
        }
    }

    fn attention_sizes(&self, tokens: u64) -> UnitSizes {
        let (stream, dim, heads) = (self.stream(tokens), self.dim, self.heads);
        let (queries, qkv) = (heads.query * heads.width, self.qkv_width());
        let linears = [[dim, qkv], [queries, dim]];
        let [queries, wide] = [queries, qkv].map(|width| tokens * width as u64);
        // Norms of heads keep their input, and the root of each head's mean of squares.
        let normed = (heads.query + heads.key_value) as u64;
        let [norms, of_norms, bias] = [
            (self.head_norms, wide + tokens * normed),
            (self.head_norms, 2 * heads.width as u64),
            (self.bias, qkv as u64),
        ]
        .map(|(has, count)| if has { count } else { 0 });
        let working = self.working(stream, 2 * wide + queries);
        UnitSizes {
            weights: dim as u64 + matrices(&linears) + bias + of_norms,
            packed: packed(&linears, Layout::OutIn, tokens),
            packed_bf16: packed_bf16(&linears),
            in_place: in_place(&linears, tokens),
            // The input with its root of the mean of squares; queries, keys and values; the output; a sum for
            // each head.
            saved: stream + tokens + wide + queries + tokens * heads.query as u64 + norms,
            selective: stream,
            pending: stream + dim as u64 + wide + queries + stream + of_norms,
            output: stream,
            working: working + scratch(&linears, Layout::OutIn, tokens),
            working_bf16: working + scratch_bf16(&linears, Layout::OutIn, tokens),
            ..UnitSizes::default()
        }
    }

    fn mlp_sizes(&self, tokens: u64) -> UnitSizes {
        let (stream, dim, ffn) = (self.stream(tokens), self.dim, self.ffn);
        let linears = [[dim, 2 * ffn], [ffn, dim]];
        let wide = tokens * ffn as u64;
        let working = self.working(stream, 3 * wide);
        UnitSizes {
            weights: dim as u64 + matrices(&linears),
            packed: packed(&linears, Layout::OutIn, tokens),
            packed_bf16: packed_bf16(&linears),
            in_place: in_place(&linears, tokens),
            // The input with its root of the mean of squares; gate and up.
            saved: stream + tokens + 2 * wide,
            selective: stream,
            pending: stream + dim as u64 + 2 * wide + wide + stream,
            output: stream,
            working: working + scratch(&linears, Layout::OutIn, tokens),
            working_bf16: working + scratch_bf16(&linears, Layout::OutIn, tokens),
            ..UnitSizes::default()
        }
    }

    fn head_sizes(&self, tokens: u64) -> UnitSizes {
        let (stream, linear) = (self.stream(tokens), [[self.dim, self.vocab]]);
        let scores = tokens * self.vocab as u64;
        UnitSizes {
            weights: (self.dim + self.dim * self.vocab) as u64,
            packed: packed(&linear, Layout::OutIn, tokens),
            packed_bf16: packed_bf16(&linear),
            in_place: in_place(&linear, tokens),
            saved: stream + tokens,
            selective: stream + tokens,
            pending: stream + self.dim as u64 + scores,
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

    /// Buffers are reused by length: five as wide as the stream, and those of the unit's inside.
    fn working(&self, stream: u64, inside: u64) -> u64 {
        5 * stream + inside
    }
}

/// The weights of linear layers with these inputs and outputs, without biases.
fn matrices(linears: &[[usize; 2]]) -> u64 {
    linears
        .iter()
        .map(|[inputs, outputs]| inputs * outputs)
        .sum::<usize>() as u64
}
