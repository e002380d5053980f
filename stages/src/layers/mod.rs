//! Ready-made layers. The [front page](crate) lists them with their shapes.
//!
//! Each file holds one layer, with its forward, backward-input and backward-weight.

mod adapter;
mod attention;
mod batch_norm;
mod block;
mod conv1d;
mod conv2d;
mod conv_sizes;
mod dropout;
mod embedding;
mod experts;
mod flatten;
mod gated;
mod gelu;
mod global_average;
mod group_norm;
mod head_norm;
mod heads;
mod images;
mod layer_norm;
mod linear;
mod max_pool;
mod operands;
mod recomputed;
mod relu;
mod reshape;
mod rms_norm;
mod rope;
mod rotary;
mod row_norm;
mod sigmoid;
mod softmax;
mod tanh;
mod weight_matrix;

pub use crate::cpu::gated::GateForm;
pub use attention::Attention;
pub use batch_norm::BatchNorm;
pub use block::Block;
pub(crate) use conv_sizes::ConvSizes;
pub use conv1d::Conv1d;
pub use conv2d::Conv2d;
pub use dropout::Dropout;
pub use embedding::Embedding;
pub use experts::{Experts, Routing};
pub use flatten::Flatten;
pub use gated::Gated;
pub use gelu::{Gelu, GeluForm};
pub use global_average::GlobalAverage;
pub use group_norm::GroupNorm;
pub use head_norm::HeadNorm;
pub use heads::Heads;
pub use layer_norm::LayerNorm;
pub use linear::Linear;
pub use max_pool::MaxPool;
pub use operands::Layout;
pub(crate) use operands::{adds_in_place, half_scratch, packed_halves, packed_weights, product_scratch};
pub use recomputed::{Cheap, Recomputed};
pub use relu::Relu;
pub use reshape::Reshape;
pub use rms_norm::RmsNorm;
pub use rope::{Rope, RopeLayout, RopeScaling};
pub use rotary::Rotary;
pub use sigmoid::Sigmoid;
pub use softmax::Softmax;
pub use tanh::Tanh;

use crate::error::{Error, Result};
use crate::shape::{Kind, Shape};

/// Fails unless the input is of numbers and `width` is its innermost dimension.
fn check_rows(input: &Shape, width: usize) -> Result<()> {
    if input.kind() == Kind::F32 && !input.dims().is_empty() && input.last() == width && width > 0 {
        return Ok(());
    }
    Err(Error::shape(format!("f32[.., {width}]"), input))
}

/// Fails unless the input is of numbers.
fn check_numbers(input: &Shape) -> Result<()> {
    if input.kind() == Kind::F32 {
        return Ok(());
    }
    Err(Error::shape("f32 numbers", input))
}
