//! Ready-made layers. The [front page](crate) lists them with their shapes.
//!
//! Each file holds one layer, with its forward, backward-input and backward-weight.

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
pub(crate) mod pointwise;
pub(crate) mod pooling;
pub(crate) mod recomputed;
pub(crate) mod reshape;
pub(crate) mod rotary;
pub(crate) mod softmax;

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
pub use linear::operands::Layout;
pub(crate) use linear::operands::{
    adds_in_place, half_scratch, packed_halves, packed_weights, product_scratch,
};
pub use norm::{LayerNorm, RmsNorm};
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
