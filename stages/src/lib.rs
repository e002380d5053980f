//! What a pipeline stage is, and ready-made ones for the CPU.
//!
//! A [`Stage`] is a slice of a model with three functions: forward, backward-input and backward-weight.
//! [`Sequential`] is the stage built from [`Layer`]s; [`models`] holds models that split into such stages.
//! Nothing in this crate knows of pipelines, ranks or schedules.

mod clock;
mod cpu;
#[allow(unsafe_code, reason = "CUDA is called through its C interface")]
mod cuda;
mod device;
pub mod devices;
mod error;
mod gradient;
mod identity;
mod kept;
mod layer;
pub mod layers;
pub mod loss;
pub mod models;
pub mod nccl;
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

pub use aligned_vec::AVec;
pub use clock::{Clock, clock};
pub use device::{DType, Device, Place};
pub use error::{Error, ErrorKind, Result};
pub use gradient::Gradient;
pub use identity::Shard;
pub use kept::Kept;
pub use layer::Layer;
pub use parameter::{Init, Parameter, Part};
pub use recompute::{Recompute, RecomputedSaved, RecomputedStage, recompute};
pub use sequential::Sequential;
pub use shape::{Kind, MAX_DIMS, Shape};
pub use stage::{Bytes, ForwardContext, Mode, Stage, StageBuilder};
pub use tensor::Tensor;
