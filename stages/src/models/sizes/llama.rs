//! How much memory the units of a Llama need.

use super::{UnitSizes, head, in_place, of_gains, of_rows, packed, packed_bf16, scratch, scratch_bf16};
use crate::layers::{Layout, Routing};
use crate::models::Llama;

impl Llama {
    /// The sizes of all units, in order, for micro-batches of `rows` sequences of `seq` tokens.
    pub fn unit_sizes(&self, rows: usize, seq: usize) -> Vec<UnitSizes> {
        let tokens = (rows * seq) as u64;
        let blocks = (0..self.layers).flat_map(|_| [self.attention_sizes(tokens), self.mlp_sizes(tokens)]);
        let (embed, head) = (self.embed_sizes(tokens), head([self.dim, self.vocab], self.dim, tokens));
        std::iter::once(embed).chain(blocks).chain([head]).collect()
    }

    fn embed_sizes(&self, tokens: u64) -> UnitSizes {
        let stream = self.stream(tokens);
        UnitSizes {
            weights: (self.vocab * self.dim) as u64,
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
        let (stream, dim, heads) = (self.stream(tokens), self.dim, self.heads);
        let (queries, qkv) = (heads.query * heads.width, self.qkv_width());
        let linears = [[dim, qkv], [queries, dim]];
        let [queries, wide] = [queries, qkv].map(|width| tokens * width as u64);
        let normed = (heads.query + heads.key_value) as u64;
        // What norms of heads keep, their sums, and their gains.
        let [norms, of_heads, gains, bias] = [
            (self.head_norms, wide),
            (self.head_norms, of_rows(tokens * normed)),
            (self.head_norms, of_gains(heads.width)),
            (self.bias, qkv as u64),
        ]
        .map(|(has, count)| if has { count } else { 0 });
        let sums = of_rows(tokens) + tokens * heads.query as u64 + of_heads;
        let grads = of_gains(dim) + gains;
        let working = self.working(stream, 2 * wide + queries);
        UnitSizes {
            weights: dim as u64 + matrices(&linears) + bias + gains,
            packed: packed(&linears, Layout::OutIn, tokens),
            packed_bf16: packed_bf16(&linears),
            in_place: in_place(&linears, tokens),
            // The input; queries, keys and values; the output.
            saved: stream + wide + queries + norms + sums,
            saved_f32: sums,
            selective: stream,
            pending: stream + wide + queries + stream + grads,
            pending_f32: grads,
            output: stream,
            working: working + scratch(&linears, Layout::OutIn, tokens),
            working_bf16: working + scratch_bf16(&linears, Layout::OutIn, tokens),
            ..UnitSizes::default()
        }
    }

    fn mlp_sizes(&self, tokens: u64) -> UnitSizes {
        if let Some(routing) = self.experts {
            return self.experts_sizes(routing, tokens);
        }
        let (stream, dim, ffn) = (self.stream(tokens), self.dim, self.ffn);
        let linears = [[dim, 2 * ffn], [ffn, dim]];
        let wide = tokens * ffn as u64;
        let working = self.working(stream, 3 * wide);
        UnitSizes {
            weights: dim as u64 + matrices(&linears),
            packed: packed(&linears, Layout::OutIn, tokens),
            packed_bf16: packed_bf16(&linears),
            in_place: in_place(&linears, tokens),
            // The input; gate and up.
            saved: stream + 2 * wide + of_rows(tokens),
            saved_f32: of_rows(tokens),
            selective: stream,
            pending: stream + 2 * wide + wide + stream + of_gains(dim),
            pending_f32: of_gains(dim),
            output: stream,
            working: working + scratch(&linears, Layout::OutIn, tokens),
            working_bf16: working + scratch_bf16(&linears, Layout::OutIn, tokens),
            ..UnitSizes::default()
        }
    }

    /// The memory of products is an upper bound: it depends on how many tokens choose an expert.
    fn experts_sizes(&self, routing: Routing, tokens: u64) -> UnitSizes {
        let (stream, dim, ffn) = (self.stream(tokens), self.dim, self.ffn);
        let router = [[dim, routing.experts]];
        let linears = [[dim, 2 * ffn], [ffn, dim]];
        let experts = routing.experts as u64;
        let rows = tokens * routing.chosen as u64;
        let (wide, scores) = (rows * ffn as u64, tokens * experts);
        let working = self.working(stream, rows * dim as u64 + 4 * wide + rows);
        // An expert with few tokens packs all of its weights.
        let of_few = experts * packed(&linears, Layout::OutIn, 1);
        UnitSizes {
            weights: dim as u64 + matrices(&router) + experts * matrices(&linears),
            packed: packed(&router, Layout::OutIn, tokens) + of_few,
            packed_bf16: packed_bf16(&router) + experts * packed_bf16(&linears),
            in_place: in_place(&router, tokens) + experts * in_place(&linears, tokens),
            // The norm's input with two sums a row; its output; the scores; gate and up; which experts were
            // chosen, with which weights.
            saved: 2 * stream + of_rows(tokens) + scores + 2 * wide + 2 * rows,
            saved_f32: of_rows(tokens) + 2 * rows,
            selective: stream,
            // The gradients of the norm's gain, with room for a shift, of the scores, gate and up, and the
            // output; the inputs of the router and of the second products; the choice of experts.
            pending: of_gains(dim) + scores + 2 * wide + stream + stream + wide + 2 * rows,
            pending_f32: of_gains(dim) + 2 * rows,
            output: stream,
            // Memory for gradients of weights has sizes that are powers of two, each up to twice as large as
            // the one before.
            working: working + 2 * scratch(&linears, Layout::OutIn, tokens),
            working_bf16: working + 2 * scratch_bf16(&linears, Layout::OutIn, tokens),
            ..UnitSizes::default()
        }
    }

    /// The numbers of the activation between units.
    fn stream(&self, tokens: u64) -> u64 {
        tokens * self.dim as u64
    }

    /// Buffers are reused by length: five as wide as the stream, and the buffers of the unit's inside.
    fn working(&self, stream: u64, inside: u64) -> u64 {
        5 * stream + inside
    }
}

/// The weights of linear layers with these inputs and outputs, without biases.
fn matrices(linears: &[[usize; 2]]) -> u64 {
    linears.iter().map(|[inputs, outputs]| inputs * outputs).sum::<usize>() as u64
}
