//! What a pipeline stage is, and ready-made stages for CPUs and GPUs.
//!
//! A [`Stage`] is a slice of a model with three functions: forward, backward-input and backward-weight.
//! [`Sequential`] is a stage made of [`Layer`]s. [`models`] has models that split into such stages. Nothing
//! in this crate knows of pipelines, ranks or schedules.
//!
//! # Ready layers
//!
//! All run on CPUs and GPUs, in `f32` and `bf16`, but the last three, which run on CPUs only, in `f32`. `..`
//! stands for any dimensions, and images are `f32[batch, height, width, channels]`.
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
//! | [`Softmax`] | `exp(x) / sum(exp(x))` over a row | `f32[.., width]` | the same |
//! | [`Tanh`] | `tanh(x)` | `f32[..]` | the same |
//!
//! `row` is the length of a row of queries, keys and values, and `n` is the length of the queries alone: see
//! [`layers::Heads`].
//!
//! [`Linear`]: layers::Linear
//! [`Embedding`]: layers::Embedding
//! [`Attention`]: layers::Attention
//! [`Attention::grouped`]: layers::Attention::grouped
//! [`Rotary`]: layers::Rotary
//! [`LayerNorm`]: layers::LayerNorm
//! [`RmsNorm`]: layers::RmsNorm
//! [`HeadNorm`]: layers::HeadNorm
//! [`Relu`]: layers::Relu
//! [`Gelu`]: layers::Gelu
//! [`Sigmoid`]: layers::Sigmoid
//! [`Gated`]: layers::Gated
//! [`Experts`]: layers::Experts
//! [`Dropout`]: layers::Dropout
//! [`Flatten`]: layers::Flatten
//! [`Reshape`]: layers::Reshape
//! [`Block`]: layers::Block
//! [`Recomputed`]: layers::Recomputed
//! [`Conv2d`]: layers::Conv2d
//! [`MaxPool`]: layers::MaxPool
//! [`GlobalAverage`]: layers::GlobalAverage
//! [`BatchNorm`]: layers::BatchNorm
//! [`GroupNorm`]: layers::GroupNorm
//! [`Conv1d`]: layers::Conv1d
//! [`Softmax`]: layers::Softmax
//! [`Tanh`]: layers::Tanh
//!
//! # More
//!
//! * Losses: [`CrossEntropy`](loss::CrossEntropy), [`BinaryCrossEntropy`](loss::BinaryCrossEntropy),
//!   [`MeanSquaredError`](loss::MeanSquaredError), [`AbsoluteError`](loss::AbsoluteError),
//!   [`Huber`](loss::Huber).
//! * Optimizers: [`AdamW`](optimizer::AdamW), [`Lion`](optimizer::Lion), [`Muon`](optimizer::Muon),
//!   [`Adafactor`](optimizer::Adafactor), [`Sgd`](optimizer::Sgd).
//! * Models: [`Gpt`](models::Gpt) (GPT-2), [`Llama`](models::Llama) and its kin, [`Mlp`](models::Mlp),
//!   [`Cnn`](models::Cnn) and [`ResNet`](models::ResNet). [`Model`](models::Model) makes one of any layers.
//! * [`Block`] composes layers of others, and needs no derivative.
//! * A layer of your own is a type that implements [`Layer`]. [`testing::check_gradients`] checks it. It runs
//!   on the CPU, and also on GPUs if it only calls ready layers: see [`Layer::runs_on_gpus`].
//!
//! # Features
//!
//! * `serde`: [`Device`], [`DType`], [`Place`], [`Recompute`], [`Shape`], [`Shard`], [`optimizer::Decay`] and
//!   [`loss::Score`] implement `Serialize` and `Deserialize`.

mod cpu;
#[allow(unsafe_code, reason = "CUDA is called through its C interface")]
mod cuda;
mod device;
pub mod devices;
pub mod error;
pub mod layers;
pub mod loss;
pub mod models;
#[doc(hidden)]
#[allow(unsafe_code, reason = "NCCL is called through its C interface")]
pub mod nccl;
pub mod optimizer;
mod parameter;
mod pool;
pub mod rng;
mod stage;
mod tensor;
pub mod testing;
pub mod threads;
pub mod units;

/// Whether the compiler optimised this package. Without optimisation, training takes hundreds of times as
/// long.
pub const IS_OPTIMIZED: bool = !matches!(env!("PIPEWRIGHT_OPT_LEVEL").as_bytes(), b"0");

pub use cpu::parts::copy;
pub use cuda::Together;
#[doc(hidden)]
pub use cuda::nvtx;
pub use device::{DType, Device, Place};
pub use error::{Error, ErrorKind, Result};
pub use parameter::Parameter;
pub use parameter::description::{Part, Shard, Training};
pub use parameter::gradient::Gradient;
pub use parameter::init::{Init, starting_at_zero};
pub use parameter::packed::Packed;
pub use stage::clock::{Clock, clock};
pub use stage::current::CurrentLayer;
pub use stage::kept::Kept;
pub use stage::layer::{ChooseLora, Layer, Lora};
pub use stage::offloaded::Offloaded;
pub use stage::recompute::{Recompute, RecomputedSaved, RecomputedStage, recompute};
pub use stage::sequential::Sequential;
pub use stage::{BuildStage, ForwardContext, Mode, Stage, StageBuilder};
pub use tensor::numbers::Numbers;
pub use tensor::shape::{Kind, MAX_DIMS, Shape};
pub use tensor::{Bytes, Tensor};
