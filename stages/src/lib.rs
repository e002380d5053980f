//! What a pipeline stage is, and ready-made stages for CPUs and GPUs.
//!
//! A [`Stage`] is a slice of a model with three functions: forward, backward-input and backward-weight.
//! [`Sequential`] is a stage made of [`Layer`]s. [`models`] has models that split into such stages. Nothing
//! in this crate knows of pipelines, ranks or schedules.
//!
//! # What is ready
//!
//! * Layers: [`layers`] lists them, with what they compute and with their shapes.
//! * Losses: [`CrossEntropy`](loss::CrossEntropy), [`BinaryCrossEntropy`](loss::BinaryCrossEntropy),
//!   [`MeanSquaredError`](loss::MeanSquaredError), [`AbsoluteError`](loss::AbsoluteError),
//!   [`Huber`](loss::Huber).
//! * Optimizers: [`AdamW`](optimizer::AdamW), [`Lion`](optimizer::Lion), [`Muon`](optimizer::Muon),
//!   [`Adafactor`](optimizer::Adafactor), [`Sgd`](optimizer::Sgd).
//! * Models: [`Gpt`](models::Gpt) (GPT-2), [`Llama`](models::Llama) and its kin, [`Mlp`](models::Mlp),
//!   [`Cnn`](models::Cnn) and [`ResNet`](models::ResNet). [`Model`](models::Model) makes one of any layers.
//! * [`Block`](layers::Block) composes layers of others, and needs no derivative.
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
mod quantised;
pub mod rng;
mod shape;
mod shards;
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
pub use parameter::description::{Part, Training};
pub use parameter::gradient::Gradient;
pub use parameter::init::{Init, starting_at_zero};
pub use parameter::own_gradient::UnusedGradients;
pub use parameter::packed::Packed;
pub use parameter::pieces::Pieces;
pub use parameter::shared::SharedWeights;
pub use parameter::short_sums::{lengthen_sums, round_sums, shorten_sums};
pub use quantised::{Quantisation, Quantised, SharedBytes};
pub use shape::{Kind, MAX_DIMS, Shape};
pub use shards::{Coming, Division, Exchange, Shard, Sharding, Team};
pub use stage::borders::Borders;
pub use stage::clock::{Clock, clock};
pub use stage::current::CurrentLayer;
pub use stage::kept::Kept;
pub use stage::layer::{ChooseLora, Layer, Lora};
pub use stage::offloaded::Offloaded;
pub use stage::recompute::Recompute;
pub use stage::recomputed_stage::{RecomputedSaved, RecomputedStage, recompute};
pub use stage::sequential::Sequential;
pub use stage::{BuildStage, ForwardContext, Mode, Stage, StageBuilder};
pub use tensor::numbers::Numbers;
pub use tensor::wires::WireFormat;
pub use tensor::{Bytes, Tensor};
