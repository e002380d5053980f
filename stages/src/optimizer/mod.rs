//! Optimizers: how gradients change weights.

pub(crate) mod adafactor;
pub(crate) mod adamw;
pub(crate) mod base;
pub(crate) mod learning_rate;
pub(crate) mod lion;
pub(crate) mod moments;
pub(crate) mod muon;
#[cfg(target_arch = "x86_64")]
pub(crate) mod registers;
pub(crate) mod sgd;

pub use crate::cuda::PASSAGE;
pub use crate::parameter::state_format::{StateFormat, StateTensor};
pub use adafactor::Adafactor;
pub use adamw::AdamW;
pub use base::{Decay, Optimizer, Update, clip_factor, states, states_of, update};
pub use learning_rate::LearningRate;
pub use lion::Lion;
pub use muon::Muon;
pub use sgd::Sgd;
