//! What a pipeline stage is, and ready-made ones for CPUs and GPUs.
//!
//! A [`Stage`] is a slice of a model with three functions: forward, backward-input and backward-weight.
//! [`Sequential`] is the stage made of [`Layer`]s; [`models`] holds models that split into such stages.
//! Nothing in this crate knows of pipelines, ranks or schedules.
//!
//! # Ready layers
//!
//! All run on CPUs and GPUs. `..` stands for any dimensions.
//!
//! | layer | what it computes | input | output |
//! | --- | --- | --- | --- |
//! | [`Linear`](layers::Linear) | `x W + b` | `f32[.., inputs]` | `f32[.., outputs]` |
//! | [`Embedding`](layers::Embedding) | the vectors of tokens and of their positions, added | `ids[batch, time]` | `f32[batch, time, dim]` |
//! | [`Attention`](layers::Attention) | causal multi-head self-attention | `f32[batch, time, 3 * dim]` | `f32[batch, time, dim]` |
//! | [`LayerNorm`](layers::LayerNorm) | rows of mean 0 and deviation 1, scaled and shifted | `f32[.., width]` | the same |
//! | [`Relu`](layers::Relu) | `max(x, 0)` | `f32[..]` | the same |
//! | [`Gelu`](layers::Gelu) | GELU, exact or by tanh | `f32[..]` | the same |
//! | [`Dropout`](layers::Dropout) | zeros at random places, in training only | `f32[..]` | the same |
//! | [`Flatten`](layers::Flatten) | all dimensions but the first in one | `f32[batch, ..]` | `f32[batch, n]` |
//! | [`Residual`](layers::Residual) | `x + f(x)` around a chain of layers | that of the chain | the same |
//! | [`Recomputed`](layers::Recomputed) | a cheap layer and a linear one; the output of the first is computed again in backward | that of the cheap layer | that of the linear layer |
//!
//! # More
//!
//! * Losses: [`CrossEntropy`](loss::CrossEntropy), [`MeanSquaredError`](loss::MeanSquaredError).
//! * Optimizers: [`AdamW`](optimizer::AdamW), [`Sgd`](optimizer::Sgd).
//! * Models: [`Gpt`](models::Gpt) (GPT-2), [`Mlp`](models::Mlp); [`Model`](models::Model) makes one of any layers.
//! * A layer of your own is a type with the trait [`Layer`]; [`testing::check_gradients`] checks it. It runs on the CPU,
//!   and on GPUs where it only calls ready layers: see [`Layer::runs_on_gpus`].
//!
//! # Features
//!
//! * `serde`: [`Device`], [`DType`], [`Place`], [`Recompute`], [`Shape`], [`Shard`], [`optimizer::Decay`] and
//!   [`loss::Score`] can be read and written.

mod clock;
mod cpu;
#[allow(unsafe_code, reason = "CUDA is called through its C interface")]
mod cuda;
mod device;
pub mod devices;
pub mod error;
mod gradient;
mod identity;
mod kept;
mod layer;
pub mod layers;
pub mod loss;
pub mod models;
pub mod nccl;
mod numbers;
pub mod optimizer;
mod parameter;
mod pool;
mod recompute;
pub mod rng;
mod sequential;
mod shape;
mod stage;
mod tensor;
pub mod testing;
pub mod threads;

/// Whether the compiler optimised this package. Without optimisation, training takes hundreds of times as long.
pub const IS_OPTIMIZED: bool = !matches!(env!("PIPEWRIGHT_OPT_LEVEL").as_bytes(), b"0");

pub use clock::{Clock, clock};
pub use device::{DType, Device, Place};
pub use error::{Error, ErrorKind, Result};
pub use gradient::Gradient;
pub use identity::Shard;
pub use kept::Kept;
pub use layer::Layer;
pub use numbers::Numbers;
pub use parameter::{Init, Parameter, Part};
pub use recompute::{Recompute, RecomputedSaved, RecomputedStage, recompute};
pub use sequential::Sequential;
pub use shape::{Kind, MAX_DIMS, Shape};
pub use stage::{BuildStage, Bytes, ForwardContext, Mode, Stage, StageBuilder};
pub use tensor::Tensor;
