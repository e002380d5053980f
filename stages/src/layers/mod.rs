//! Ready-made layers.
//!
//! All run on CPUs and GPUs, in `f32` and `bf16`, but [`Conv1d`], [`Softmax`] and [`Tanh`], which run on CPUs
//! only, in `f32`. `..` stands for any dimensions, and images are `f32[batch, height, width, channels]`.
//!
//! | layer | what it computes | input | output |
//! | --- | --- | --- | --- |
//! | [`Linear`] | `x W + b` | `f32[.., inputs]` | `f32[.., outputs]` |
//! | [`Embedding`] | token vectors; also of positions | `ids[batch, time]` | `f32[batch, time, dim]` |
//! | [`Attention`] | causal multi-head attention | `f32[batch, time, 3 * dim]` | `f32[batch, time, dim]` |
//! | [`Attention::grouped`] | the same with shared keys | `f32[batch, time, row]` | `f32[batch, time, n]` |
//! | [`Rotary`] | turns queries and keys by their positions | `f32[batch, time, row]` | the same |
//! | [`LayerNorm`] | rows of mean 0, deviation 1; scaled, shifted | `f32[.., width]` | the same |
//! | [`RmsNorm`] | rows of root mean square 1; scaled | `f32[.., width]` | the same |
//! | [`HeadNorm`] | RMSNorm of query and key heads | `f32[.., (query + 2 key_value) width]` | the same |
//! | [`Relu`] | `max(x, 0)` | `f32[..]` | the same |
//! | [`Gelu`] | GELU, exact or by tanh | `f32[..]` | the same |
//! | [`Sigmoid`] | `1 / (1 + exp(-x))` | `f32[..]` | the same |
//! | [`Gated`] | SwiGLU, GeGLU: `act(a) b` for a row `[a, b]` | `f32[.., 2 * width]` | `f32[.., width]` |
//! | [`Experts`] | a mixture of experts | `f32[.., dim]` | the same |
//! | [`Dropout`] | zeros at random places, in training only | `f32[..]` | the same |
//! | [`Flatten`] | all dimensions but the first become one | `f32[batch, ..]` | `f32[batch, n]` |
//! | [`Reshape`] | the same numbers in other dimensions | `f32[batch, ..]` | `f32[batch, dims..]` |
//! | [`Block`] | layers composed: a chain, a residual, branches (see there) | the first's | the last's |
//! | [`Recomputed`] | a cheap layer, then a linear one (see there) | the first's | the second's |
//! | [`Conv2d`] | a convolution with stride and padding | images | images |
//! | [`MaxPool`] | the largest number in a window | images | images |
//! | [`GlobalAverage`] | the mean over all pixels | images | `f32[batch, channels]` |
//! | [`BatchNorm`] | each channel normal over a micro-batch | `f32[.., channels]` | the same |
//! | [`GroupNorm`] | groups of channels normal over an image | images | the same |
//! | [`Conv1d`] | a convolution along time | `f32[batch, time, inputs]` | `f32[batch, places, outputs]` |
//! | [`OwnRows`] | a shard's rows, of all rows | `f32[rows, own outputs]` | `f32[own rows, outputs]` |
//! | [`Softmax`] | `exp(x) / sum(exp(x))` over a row | `f32[.., width]` | the same |
//! | [`Tanh`] | `tanh(x)` | `f32[..]` | the same |
//!
//! `row` is the length of a row of queries, keys and values, and `n` is the length of the queries alone: see
//! [`Heads`].
//!
//! A layer is a folder: the layer is in `mod.rs`, its loops for the CPU in `cpu.rs`, its launches in
//! `cuda.rs`, and its CUDA kernels in `kernel.cu`, which `cuda/source.rs` lists. Small ones have fewer files.

pub(crate) mod attention;
pub(crate) mod block;
pub(crate) mod channel_norm;
pub(crate) mod conv;
pub(crate) mod dropout;
pub(crate) mod embedding;
pub(crate) mod experts;
pub(crate) mod gated;
pub(crate) mod head_norm;
pub(crate) mod heads;
pub(crate) mod linear;
pub(crate) mod norm;
pub(crate) mod own_rows;
pub(crate) mod pointwise;
pub(crate) mod pooling;
pub(crate) mod recomputed;
pub(crate) mod reshape;
pub(crate) mod rotary;
pub(crate) mod softmax;
pub(crate) mod wire;

pub use attention::Attention;
pub use block::Block;
pub use channel_norm::batch_norm::BatchNorm;
pub use channel_norm::group_norm::GroupNorm;
pub use conv::conv1d::Conv1d;
pub use conv::conv2d::Conv2d;
pub(crate) use conv::sizes::ConvSizes;
pub use dropout::Dropout;
pub use embedding::Embedding;
pub use experts::{Experts, Routing};
pub use gated::Gated;
pub use gated::cpu::GateForm;
pub use head_norm::HeadNorm;
pub use heads::Heads;
pub use linear::Linear;
pub use linear::by_rows::rows_at_once;
pub(crate) use linear::by_rows::{SCORES_AT_ONCE, SCORES_ON_GPU, goes_by_rows};
pub use linear::operands::{Layout, decoded_numbers};
pub(crate) use linear::operands::{
    adds_in_place, half_scratch, packed_halves, packed_weights, product_scratch,
};
pub use norm::{LayerNorm, RmsNorm};
pub use own_rows::OwnRows;
pub use pointwise::gelu::{Gelu, GeluForm};
pub use pointwise::relu::Relu;
pub use pointwise::sigmoid::Sigmoid;
pub use pointwise::tanh::Tanh;
pub use pooling::global_average::GlobalAverage;
pub use pooling::max_pool::MaxPool;
pub use recomputed::{Cheap, Recomputed};
pub use reshape::{Flatten, Reshape};
pub use rotary::Rotary;
pub use rotary::rope::{Rope, RopeLayout, RopeScaling};
pub use softmax::Softmax;
