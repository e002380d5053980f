//! What a unit of a model is made of, as data.

use crate::layers::{Heads, Layout, Routing, goes_by_rows};

/// A layer of a unit, by its sizes. The work, the memory and the kernels of a unit follow from its parts, and
/// nothing is made for them. A linear layer after a norm, an activation or a gate makes its input again in
/// backward: see [`Recomputed`](crate::layers::Recomputed).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Part {
    /// Vectors of tokens and of positions: the rows of both tables (0: no positions), and their width.
    Embedding([usize; 2], usize),
    /// A norm: the width of a row, and the number of its parameters of this width.
    Norm(usize, usize),
    /// Norms of the heads of queries and keys.
    HeadNorm(Heads),
    /// Queries and keys are turned by their positions.
    Rotary(Heads),
    /// Attention, and how many tokens a token sees at most.
    Attention(Heads, usize),
    /// A linear layer: `[inputs, outputs]`, the layout of its weights, and whether it has a bias.
    Linear([usize; 2], Layout, bool),
    /// The scores of all tokens: `[inputs, tokens]`, and whether the weights are tied to the embedding.
    Scores([usize; 2], bool),
    /// Where there are shards: from each shard's outputs of all rows to all outputs of its own rows.
    OwnRows,
    /// GELU.
    Gelu,
    /// An activation of one half of a row, times the other half.
    Gated,
    /// A mixture of experts: the width of a row, the width inside an expert, and how tokens choose.
    Experts([usize; 2], Routing),
    /// Dropout with a probability above 0.
    Dropout,
    /// The sum with the input, at the end of a block of a transformer.
    Residual,
    /// ReLU.
    Relu,
    /// A convolution: the sides of its output, `[inputs, outputs]`, the side of its window, and whether it
    /// has a bias. The sides of its input are the same, or were divided by its stride.
    Conv([usize; 2], [usize; 2], usize, bool),
    /// A batch norm of this many channels.
    BatchNorm(usize),
    /// The largest numbers in windows: this many for an image.
    MaxPool(usize),
    /// The means of this many channels.
    GlobalAverage(usize),
    /// The next part reads the input of the unit, as the first part does.
    Shortcut,
    /// The sum of both branches, at the end of a block of convolutions.
    Sum,
}

impl Part {
    /// Whether the part, at the end of a model, is deferred to the backward for micro-batches of `rows` rows:
    /// see [`Layer::defer_head`](crate::Layer::defer_head).
    pub fn is_deferred(&self, rows: usize) -> bool {
        matches!(*self, Self::Scores(sizes, _) if goes_by_rows(sizes, rows))
    }

    /// The operations of a forward pass for a row: two for each multiply-add of a product.
    pub(super) fn operations(&self) -> f64 {
        let product = |sizes: &[usize]| 2.0 * sizes.iter().product::<usize>() as f64;
        match *self {
            Self::Embedding(_, dim) => product(&[dim]),
            Self::Attention(heads, seen) => product(&[seen, heads.query, heads.width]),
            Self::Linear(sizes, ..) | Self::Scores(sizes, _) => product(&sizes),
            Self::Experts([dim, ffn], routing) => {
                product(&[dim, 3 * ffn, routing.chosen]) + product(&[dim, routing.experts])
            }
            Self::Conv(sides, channels, kernel, _) => {
                product(&[&[kernel; 2], &sides[..], &channels].concat())
            }
            _ => 0.0,
        }
    }
}
